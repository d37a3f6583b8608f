"""What people and scripts see of a snapshot without Grafana: a page and its JSON twin."""

from kvcache_exporter.status.api import engines_json
from kvcache_exporter.status.page import status_page

__all__ = ["engines_json", "status_page"]
