#!/usr/bin/env bash
# The whole exchange with curl:  examples/curl.sh [http://127.0.0.1:8000]
# A verifier with a key wants it in every request: set KEY.
set -euo pipefail

URL=${1:-http://127.0.0.1:8000}
SESSION=curl-$$-$RANDOM # of our own choice; without one, the caller's latest session is meant
PLAIN=(--header "Content-Type: application/json")
[ -z "${KEY:-}" ] || PLAIN+=(--header "Authorization: Bearer $KEY")
HEADERS=("${PLAIN[@]}" --header "X-Session-Id: $SESSION")

# ask METHOD PATH [BODY]: show the request, then the answer
ask() {
    printf '\n%s\n' "$*"
    curl --silent --show-error --fail-with-body --no-buffer --noproxy 'localhost,127.0.0.1,::1' \
        "${HEADERS[@]}" --request "$1" "$URL$2" ${3:+--data "$3"}
    echo
}

ask GET /health
ask GET /model

# Open a session. The answer holds the ids of the prompt and the first token of the text.
ask POST /prefill '{"prompt": "def main():", "max_tokens": 16}'

# Three guesses for what comes next (the target of the shipped pair takes them). "tokens" is what is certain now, from
# "position" on: the guesses that stand, then one token more.
ask POST /verify '{"draft_tokens": [632, 200, 260]}'

# The place is counted from the guesses that stood, so this asks about the token that came with them: it is certain
# already, and told from the record ("forward_ms" is 0). A client that sends its "position" says itself where it is, and
# may repeat itself, or have several guesses under way.
ask POST /verify '{"draft_tokens": []}'

# No guess behind all that is certain: a step of plain decoding, one token of the target's own.
ask POST /verify '{"draft_tokens": []}'

ask DELETE "/sessions/$SESSION"

# The target by itself, first as one answer, then as server-sent events while it writes. (A session of its own each.)
HEADERS=("${PLAIN[@]}")
ask POST /generate '{"prompt": "def main():", "max_tokens": 16}'
ask POST /generate '{"prompt": "def main():", "max_tokens": 8, "stream": true}'

# A text that was cut goes on behind the tokens that came of it, here at any verifier of this model. They are sent with
# the seed; so is the session's id, where the verifier may still have it.
ask POST /generate '{"prompt": "def main():", "max_tokens": 16, "seed": 0, "committed_ids": [632, 200, 260]}'

# Drafted on the server, too, if it was started with VERIFIER_DRAFT_MODEL: the same text in one round trip.
if ask GET /model | grep '"fused"' > /dev/null; then
    ask POST /generate '{"prompt": "def main():", "max_tokens": 16, "mode": "fused"}'
fi

HEADERS+=(--header "X-Session-Id: $SESSION")

# Guesses for several sessions in one request; the second session does not exist, which is nothing to the first.
ask POST /prefill '{"prompt": "def main():", "max_tokens": 16}'
ask POST /verify/batch '{"items": [{"session_id": "'"$SESSION"'", "draft_tokens": [632]}, {"session_id": "none", "draft_tokens": []}]}'
ask DELETE "/sessions/$SESSION"
