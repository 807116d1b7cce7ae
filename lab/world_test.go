package lab

import (
	"strings"
	"testing"
)

func run(t *testing.T, h *Host, name string, args ...string) string {
	t.Helper()
	out, err := h.Command(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %s %v: %v\n%s", h.Name(), name, args, err, out)
	}
	return string(out)
}

func TestThreeWaysPings(t *testing.T) {
	in := needWorld(t, ThreeWays())
	client := in.Host("client")
	for _, to := range []string{ServerAddr.String(), ServerAddr6.String(), "server.example"} {
		for _, way := range Ways {
			out := run(t, client, "ping", "-I", way, "-c", "2", "-i", "0.01", "-W", "5", to)
			if !strings.Contains(out, " 0% packet loss") {
				t.Errorf("%s by %s:\n%s", to, way, out)
			}
		}
	}
	if out, err := client.Command(t.Context(), "ping", "-c", "1", "-W", "1", WebAddr.String()).CombinedOutput(); err == nil {
		t.Errorf("the client reaches the web host without the server:\n%s", out)
	}
	run(t, in.Host("server"), "ping", "-c", "1", "-W", "5", WebAddr.String())
}
