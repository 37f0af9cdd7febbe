#!/usr/bin/env bash
# The whole exchange with curl:  examples/curl.sh [http://127.0.0.1:8000]
# If the verifier has an API key, set the variable KEY.
set -euo pipefail

URL=${1:-http://127.0.0.1:8000}
SESSION=curl-$$-$RANDOM # chosen by the client; without an id, the caller's latest session is meant
PLAIN=(--header "Content-Type: application/json")
[ -z "${KEY:-}" ] || PLAIN+=(--header "Authorization: Bearer $KEY")
HEADERS=("${PLAIN[@]}" --header "X-Session-Id: $SESSION")

# ask METHOD PATH [BODY]: print the request, then the reply
ask() {
    printf '\n%s\n' "$*"
    curl --silent --show-error --fail-with-body --no-buffer --noproxy 'localhost,127.0.0.1,::1' \
        "${HEADERS[@]}" --request "$1" "$URL$2" ${3:+--data "$3"}
    echo
}

ask GET /health
ask GET /model

# Open a session. The reply contains the ids of the prompt and the first token of the text.
ask POST /prefill '{"prompt": "def main():", "max_tokens": 16}'

# Three draft tokens (the shipped target accepts them). "tokens" are the tokens committed from "position" on: the
# accepted draft tokens, then the bonus token.
ask POST /verify '{"draft_tokens": [632, 200, 260]}'

# Without "position", the server moves the position by the accepted draft tokens only. So this returns the bonus token,
# which is committed already ("forward_ms" is 0). A client that sends its "position" can repeat a request, and can have
# several drafts in flight.
ask POST /verify '{"draft_tokens": []}'

# No draft tokens, and no further committed tokens: one step of plain decoding, which gives one token.
ask POST /verify '{"draft_tokens": []}'

ask DELETE "/sessions/$SESSION"

# The target alone, first as one reply, then as server-sent events. Each request has a session of its own.
HEADERS=("${PLAIN[@]}")
ask POST /generate '{"prompt": "def main():", "max_tokens": 16}'
ask POST /generate '{"prompt": "def main():", "max_tokens": 8, "stream": true}'

# Continue an interrupted text after the tokens that arrived, on any verifier of this model: send these tokens and the
# seed. Send the session's id, too, if this verifier may still hold the session.
ask POST /generate '{"prompt": "def main():", "max_tokens": 16, "seed": 0, "committed_ids": [632, 200, 260]}'

# Server-side drafting, if the verifier was started with VERIFIER_DRAFT_MODEL: the same text in one round trip.
if ask GET /model | grep '"fused"' > /dev/null; then
    ask POST /generate '{"prompt": "def main():", "max_tokens": 16, "mode": "fused"}'
fi

HEADERS+=(--header "X-Session-Id: $SESSION")

# Draft tokens for several sessions in one request. The second session does not exist, which does not affect the first.
ask POST /prefill '{"prompt": "def main():", "max_tokens": 16}'
ask POST /verify/batch '{"items": [{"session_id": "'"$SESSION"'", "draft_tokens": [632]}, {"session_id": "none", "draft_tokens": []}]}'
ask DELETE "/sessions/$SESSION"
