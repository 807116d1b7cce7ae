package pathkinds

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"heddle/lab"
	"heddle/lab/peer"
)

// aioquicProgram is the Python that runs testdata/connect_udp.py: HTTP/3 and QUIC by other people, in another language.
func (w *world) aioquicProgram() []string {
	w.t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		w.t.Skip(peer.ErrMissing, err)
	}
	dir, err := peer.Aioquic(w.t.Context(), w.t.Logf)
	if err != nil {
		w.t.Fatal(err)
	}
	script, err := filepath.Abs("testdata/connect_udp.py")
	if err != nil {
		w.t.Fatal(err)
	}
	return []string{filepath.Join(dir, "bin", "python"), script}
}

// The proxy serves a client that is not ours.
func TestMasqueServesAioquic(t *testing.T) {
	w := newWorld(t, lab.ThreeWaysUnlimited())
	program := w.aioquicProgram()
	w.udpEcho("server", quicAt, relayAt)
	_, _, secret := w.masque()
	token, err := os.ReadFile(strings.TrimPrefix(secret[1], "m="))
	if err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{
		strings.TrimSpace(string(token)): "status 200 ?1\n0 hello\n0 there\n",
		"wrong":                          "status 407 \n",
	} {
		input := strings.NewReader("hello\nthere\n")
		if given == "wrong" {
			input = strings.NewReader("")
		}
		cmd := w.Host("client").Command(t.Context(), program[0], program[1], "client", masqueAt.Addr().String(), "4433", given,
			quicAt.Addr().String(), "443")
		cmd.Stdin = input
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != want {
			t.Errorf("%v: %q, want %q", err, out, want)
		}
	}
}

// A path leaves through a proxy that is not ours.
func TestMasqueLeavesThroughAioquic(t *testing.T) {
	w := newWorld(t, lab.ThreeWaysUnlimited())
	program := w.aioquicProgram()
	ask := w.udpEcho("server", quicAt, relayAt)
	certificate, key := filepath.Join(w.dir, "certificate.pem"), filepath.Join(w.dir, "key.pem")
	if err := peer.SelfSigned(certificate, key, nil, []netip.Addr{masqueAt.Addr()}); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(w.dir, "token")
	if err := os.WriteFile(token, []byte("mF_9.B5f-4.1JqM\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	proxy, err := peer.Start(t.Context(), w.Host("core"), program[0], program[1], "proxy", masqueAt.Addr().String(), "4433", certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)
	w.await("listening", proxy, func() bool { return strings.Contains(proxy.Log(), "listening") })
	stop := w.watch("server/core")
	w.split("--via", "m=masque:https://"+masqueAt.String()+"#sha256="+pinOf(t, certificate)+"@lte", "--path", "lte=if:lte", "--secret", "m="+token)
	ask(20)
	wantPeers(t, "the server", stop()["server/core"], proxyToServer)
	for _, line := range []string{":protocol connect-udp", ":path /.well-known/masque/udp/192.0.2.1/443/", "capsule-protocol ?1",
		"proxy-authorization Bearer mF_9.B5f-4.1JqM", ":authority " + masqueAt.String(), ":scheme https"} {
		if !strings.Contains(proxy.Log()+"\n", line+"\n") {
			t.Errorf("the proxy got no %q:\n%s", line, proxy.Log())
		}
	}
}

// pinOf is the SHA-256 of the certificate's public key.
func pinOf(t *testing.T, file string) string {
	t.Helper()
	hash, err := peer.KeyHash(file)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", hash)
}
