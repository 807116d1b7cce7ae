package pathkinds

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A way out that does not work says why, and the session goes on by the one that does.
func TestWaysOutThatRefuse(t *testing.T) {
	w := newTunnels(t)
	at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(proxyAt.Addr(), port) }
	w.dante("proxy", danteConfig{listen: at(1081), noUDP: true})
	w.dante("proxy", danteConfig{listen: at(1082), accounts: true})
	text, err := os.ReadFile(w.file)
	if err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(w.dir, "dead.conf")
	if err := os.WriteFile(dead, []byte(strings.Replace(string(text), vpnAt.String(), netip.AddrPortFrom(vpnAt.Addr(), 9).String(), 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	const password = "a-very-secret-password"
	r := w.split("--via", "home=if:home", "--via", "refuses=socks5:203.0.113.6:1081@office", "--via", "wrong=socks5:203.0.113.6:1082@office",
		"--via", "asks=socks5:203.0.113.6:1082@office", "--via", "absent=socks5:203.0.113.6:1083@office", "--via", "dead=wireguard:"+dead+"@lte",
		"--path", "lte=if:lte", "--path", "office=if:office", "--secret", "wrong="+w.secret("nobody:"+password),
		"--schedule", "round-robin", "--every", "5p", "--min-paths", "1")
	w.session()
	if err := w.fetch(); err != nil {
		t.Fatalf("%v\n%s", err, r.Log())
	}
	why := map[string]string{
		"refuses": "refuses UDP",
		"wrong":   "does not accept the user and password",
		"asks":    "wants a user and a password",
		"absent":  "cannot be reached",
		"dead":    "does not answer: nothing listens on that port, says 203.0.113.2",
	}
	paths := r.await(func(paths map[string]pathStatus) bool {
		for name := range why {
			if paths[name].State != "down" {
				return false
			}
		}
		return true
	})
	for name, want := range why {
		if !strings.Contains(paths[name].Why, want) {
			t.Errorf("%s: %q, not %q", name, paths[name].Why, want)
		}
	}
	if strings.Contains(r.Log(), password) {
		t.Errorf("the password is in the log:\n%s", r.Log())
	}
}

// crash kills all programs of a host: danted's helpers outlive it.
func (w *tunnels) crash(host string) {
	w.t.Helper()
	out, err := exec.Command("ip", "netns", "pids", filepath.Base(w.Host(host).Namespace())).Output()
	if err != nil || len(out) == 0 {
		w.t.Fatalf("programs of %s: %q, %v", host, out, err)
	}
	for _, word := range strings.Fields(string(out)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
			w.t.Fatal(err)
		}
	}
}

// A proxy and a tunnel's server vanish in the middle of a session, and come back.
func TestWaysOutThatVanish(t *testing.T) {
	w := newTunnels(t)
	proxy := w.dante("proxy", danteConfig{listen: proxyAt})
	r := w.split("--via", "home=if:home", "--via", "t=wireguard:"+w.file+"@lte", "--via", "p=socks5:"+proxyAt.String()+"@office",
		"--path", "lte=if:lte", "--path", "office=if:office", "--schedule", "round-robin", "--every", "5p", "--min-paths", "1")
	w.session()
	// busy keeps the session busy until its paths are as wanted.
	busy := func(when string, wanted func(map[string]pathStatus) bool) map[string]pathStatus {
		if err := w.fetch(); err != nil { // there is no session before
			t.Fatalf("%s: %v\n%s", when, err, r.Log())
		}
		return r.await(func(paths map[string]pathStatus) bool {
			if err := w.fetch(); err != nil {
				t.Fatalf("%s: %v\n%s", when, err, r.Log())
			}
			return wanted(paths)
		})
	}
	busy("before", up)
	w.crash("proxy")
	<-proxy.Done()
	// Its programs end one after the other, so that the first reason may be another one.
	busy("without the proxy", func(paths map[string]pathStatus) bool {
		return paths["p"].State == "down" && strings.Contains(paths["p"].Why, "cannot be reached")
	})
	w.dante("proxy", danteConfig{listen: proxyAt})
	busy("with the proxy again", up)
	w.crash("vpn")
	paths := busy("without the tunnel", func(paths map[string]pathStatus) bool {
		return paths["t"].State == "silent" || paths["t"].State == "down"
	})
	if paths["t"].Why == "" {
		t.Error("nothing says why the tunnel's path is not used")
	}
}
