#!/bin/sh
# Makes the certificates of the TLS tests: a CA, a server for 127.0.0.1 and localhost, one for
# another name, one that has expired, and a client. They protect nothing.
set -eu
cd "$(dirname "$0")"
key() { openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1.key"; }
key ca
openssl req -x509 -new -key ca.key -days 36500 -subj "/CN=test CA" -out ca.pem
signed() { # name, subject alternative names, end date
    key "$1"
    openssl req -new -key "$1.key" -subj "/CN=$1" -out "$1.csr"
    mkdir -p ca.d && : > ca.d/index.txt
    printf '[ca]\ndefault_ca=d\n[d]\ndatabase=ca.d/index.txt\nnew_certs_dir=ca.d\nrand_serial=yes\ndefault_md=sha256\npolicy=p\nx509_extensions=e\n[p]\ncommonName=supplied\n[e]\nsubjectAltName=%s\n' "$2" > ca.d/conf
    openssl ca -batch -config ca.d/conf -cert ca.pem -keyfile ca.key -in "$1.csr" -out "$1.pem" -notext -startdate 20200101000000Z -enddate "$3" 2>/dev/null
    rm -r "$1.csr" ca.d
}
signed server "IP:127.0.0.1,DNS:localhost" 21200101000000Z
signed other "DNS:other.invalid" 21200101000000Z
signed expired "IP:127.0.0.1,DNS:localhost" 20210101000000Z
signed client "DNS:client.invalid" 21200101000000Z
rm ca.key
