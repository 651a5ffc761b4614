"""Which models the price list and their routes know."""

import http.server
import json
import threading
from typing import Any

import pytest

from arena.doctor.models import checks

KEY = "sk-doctor-3f0d9a11"
LIST = {"data": [{"id": "claude-opus-5"}, {"id": "claude-opus-4-7"}]}


class Provider(http.server.BaseHTTPRequestHandler):
    asked: list[tuple[str, str | None]] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("x-api-key")))
        moved = self.path.startswith("/moved")
        self.send_response(302 if moved else 200)
        if moved:
            self.send_header("Location", "/v1/models")
        self.end_headers()
        self.wfile.write(json.dumps(LIST).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def found(tmp_path, monkeypatch):
    """What the doctor says when the routes lead to a provider here."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        Provider.asked.clear()
        url = f"http://127.0.0.1:{server.server_address[1]}"
        own = {"title": "Here", "base_url": f"{url}/v1", "key": "DOCTOR_KEY"}
        shared: dict[str, Any] = {"anthropic": own | {"apis": ["anthropic"], "prices": "anthropic"}}
        shared["google"] = own | {"apis": ["gemini"], "base_url": f"{url}/moved"}
        shared["openai"] = own | {"apis": ["responses"], "prices": "openai", "key": "NO_SUCH_KEY"}
        shared["openrouter"] = shared["moonshot"] = shared["xai"] = own | {"apis": ["chat"], "key": "NO_SUCH_KEY"}
        (tmp_path / "routes.yaml").write_text(json.dumps({"schema_version": 2, "routes": shared}))
        monkeypatch.setenv("ARENA_ROUTES", str(tmp_path / "routes.yaml"))
        monkeypatch.setenv("DOCTOR_KEY", KEY)
        monkeypatch.setenv("ARENA_KEYS", str(tmp_path))
        yield {check.name: check for check in checks()}
        server.shutdown()


def test_each_model_says_its_price_and_if_it_is_listed(found):
    assert found["claude-opus-5"] == ("claude-opus-5", "ok", "claude, anthropic: 5 USD in, 25 USD out; the route lists it")
    assert (found["claude-opus-5-5"].state, found["claude-opus-5-5"].detail[-26:]) == ("note", "the route does not list it")
    assert found["gpt-6-sol"].detail.endswith("USD out; not asked: no NO_SUCH_KEY")
    assert found["grok-4.7"].state == "note" and "not in the price list" in found["grok-4.7"].detail
    assert all(check.state in ("ok", "note") for check in found.values())


def test_the_key_follows_no_redirect_and_is_in_no_line(found):
    assert "answered 302" in found["gemini-4-argon"].detail
    assert [path for path, _ in Provider.asked if path.startswith("/v1")] == ["/v1/models?limit=1000"]
    assert KEY not in str(found.values())
