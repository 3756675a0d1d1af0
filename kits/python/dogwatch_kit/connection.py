"""Requests to the server with the standard library, so that users of any Kubernetes client can use the kit."""

import base64
import http.client
import json
import ssl
import tempfile
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import yaml

GROUP = "/apis/lab.dogwatch.dev/v1"
# A settlement and an advance of the clock are answered within a minute.
TIMEOUT_SECONDS = 90


class ApiError(Exception):
    """An answer of the server that is an error; `code` is its HTTP status."""

    def __init__(self, code: int, message: str):
        super().__init__(f"{code}: {message}")
        self.code = code


class Connection:
    """The address and the credentials of a kubeconfig."""

    def __init__(self, kubeconfig: str):
        config = yaml.safe_load(kubeconfig)
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        address = urlsplit(cluster["server"])
        self._host, self._port, self._prefix = address.hostname, address.port, address.path.rstrip("/")
        self._headers = {"User-Agent": "dogwatch-kit-python", "Accept": "application/json"}
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        if "token" in user:
            self._headers["Authorization"] = f"Bearer {user['token']}"
        else:
            self._load_certificate(user)

    def _load_certificate(self, user: dict) -> None:
        # The standard library reads certificates from files only.
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "client.pem")
            file.touch(mode=0o600)
            parts = (user["client-certificate-data"], user["client-key-data"])
            file.write_bytes(b"\n".join(base64.b64decode(part) for part in parts))
            self._tls.load_cert_chain(file)

    def request(self, method: str, path: str, body: dict | None = None, media: str = "application/json") -> dict:
        """Sends a request for the group of the lab and returns the answer."""
        connection = http.client.HTTPSConnection(self._host, self._port, context=self._tls, timeout=TIMEOUT_SECONDS)
        try:
            headers = {**self._headers, "Content-Type": media}
            content = None if body is None else json.dumps(body)
            connection.request(method, f"{self._prefix}{GROUP}/{path}", content, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= 300:
            raise ApiError(answer.status, message_of(text))
        return json.loads(text)

    def create(self, plural: str, kind: str, name: str | None, spec: dict) -> dict:
        metadata = {"name": name} if name else {"generateName": "kit-"}
        body = {"apiVersion": "lab.dogwatch.dev/v1", "kind": kind, "metadata": metadata, "spec": spec}
        return self.request("POST", plural, body)

    def list(self, plural: str, fields: dict) -> list[dict]:
        """Lists the objects whose fields have these values."""
        selector = ",".join(f"{field}={value}" for field, value in fields.items())
        query = "?" + urlencode({"fieldSelector": selector}) if selector else ""
        return self.request("GET", plural + query)["items"]


def message_of(text: str) -> str:
    """The message of a Status, or the text itself if it is none."""
    try:
        return json.loads(text)["message"]
    except (ValueError, KeyError, TypeError):
        return text
