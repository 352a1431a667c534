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


def test_a_memory_with_a_slash_in_its_id_is_erased_and_reading_keeps_no_response() -> None:
    with serving() as served, served.http() as http:
        http.post("/v1/memories", json={"id": "notes/cat", "text": "The cat is grey."})
        key = {"Idempotency-Key": "read"}
        for speaker in ("web", "mail"):  # a reading has no first response to keep
            sent = http.post("/v1/sources/touched", json={"speakers": [speaker]}, headers=key)
            assert sent.status_code == 200
        receipt = http.post("/v1/memories/notes/cat/erase")
        assert (receipt.status_code, receipt.json()["items"]) == (200, 1)
        assert http.get("/v1/memories").json()["items"] == []
