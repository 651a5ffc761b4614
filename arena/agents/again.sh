# Runs the agent's command. When the provider broke it off and answers again, as the gateway knows, goes on with its session.
# A shell, and in the foreground: agents end processes by the name python, and a command in the background ignores SIGINT.
trap 'ending=1' TERM

again() {
    python -I -c 'import http.client, sys
gateway = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
gateway.request("POST", sys.argv[2])
sys.exit(gateway.getresponse().status != 200)' GATEWAY_PORT /resume 2>/dev/null
}

"$@"
code=$?
while [ -z "$ending" ] && again && [ -z "$ending" ]; do
    RESUME </dev/null
    code=$?
done
exit "$code"
