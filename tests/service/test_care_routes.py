"""Review, traces and erasure over HTTP, with the scopes that they need."""

from __future__ import annotations

from service_kit import serving


def test_erasure_and_traces_over_http() -> None:
    with serving() as served:
        key = served.key("ana", "memory:read", "memory:write", "memory:delete")
        reader = served.key("ana", "memory:read", "memory:write")
        with served.http(key) as http:
            turns = [{"speaker": "web", "text": "The code of the safe is 4711.", "trust": "tool"}]
            body = {"id": "s1", "turns": turns}
            assert http.post("/v1/sessions?wait=true", json=body).status_code == 200
            (item,) = http.get("/v1/memories").json()["items"]
            assert http.get("/v1/memories?min_trust=user").json()["items"] == []
            source = {"speakers": ["web"]}
            touched = http.post("/v1/sources/touched", json=source).json()["items"]
            assert [one["item"]["id"] for one in touched] == [item["id"]]
            assert http.get("/v1/quarantine").json()["items"] == []
            assert http.post("/v1/quarantine/c1.q0/accept").status_code == 404
            with served.http(reader) as weak:
                for path in ("sources/exclude", "memories/x/erase", "sessions/s1/erase"):
                    assert weak.post(f"/v1/{path}", json=source).status_code == 403
            assert http.post("/v1/sources/touched", json={}).status_code == 422
            receipt = http.post("/v1/sessions/s1/erase").json()
            assert (receipt["items"], receipt["turns"]) == (1, 1)
            assert http.get("/v1/memories").json()["items"] == []
            assert http.get("/v1/sessions").json()["items"] == []
            assert http.post("/v1/sessions/s1/erase").status_code == 404
