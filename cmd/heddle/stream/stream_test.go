package stream

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"heddle/cmd/heddle/internal/cli"
	"heddle/cmd/heddle/internal/clitest"
	"heddle/cmd/heddle/internal/control"
	"heddle/config"
	"heddle/internal/errhint"
	"heddle/stripe"
)

func TestStreamCarriesAProgram(t *testing.T) {
	clitest.ShortRunDir(t)
	here, there := heddle.NewDevice(t), heddle.NewDevice(t)
	_, at := there.Start(`echo: listening on (\S+) for 1 key(?s:.*)--key `+regexp.QuoteMeta(there.Key), "stream", "serve", "--name", "echo", "--to", clitest.EchoServer(t), "--listen", "127.0.0.1:0", "--allow", here.Key)
	keylog := filepath.Join(t.TempDir(), "keys")
	args := append([]string{"stream", "dial", "echo", "--listen", "127.0.0.1:0", "--to", at[1], "--key", there.Key, "--keylog", keylog}, clitest.TwoPaths...)
	said, up := here.Start(`echo is up: listening on (\S+), to \S+ over 2 paths, strict`, args...)
	for _, want := range []string{"claim: each of 2 paths", "WARNING: the keys of all sessions are written to " + keylog} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, said)
		}
	}
	text := strings.Repeat("all of it comes back. ", 20_000)
	for range 3 {
		if got := clitest.Echoed(t, up[1], text); got != text {
			t.Fatalf("%d bytes of %d came back", len(got), len(text))
		}
	}
	if keys, err := os.ReadFile(keylog); err != nil || !bytes.Contains(keys, []byte("CLIENT_TRAFFIC_SECRET_0 ")) {
		t.Errorf("the key log holds %q, %v", keys, err)
	}
	for name, role := range map[string]string{"dial-echo": "dial", "serve-echo": "serve"} {
		s, err := control.Ask(t.Context(), name)
		if err != nil || s.Stream == nil || s.Stream.Role != role || s.Stream.Service != "echo" {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	_, again := here.Start(`dial-echo is already running \(pid \d+\): heddle status and heddle down know this one as (\S+)\n(?s:.*)echo is up: listening on (\S+),`, args...)
	if s, err := control.Ask(t.Context(), again[1]); err != nil || s.Stream == nil || s.Stream.Listen != again[2] || s.Stream.Listen == up[1] {
		t.Errorf("%s: %+v, %v", again[1], s, err)
	}
}

func TestStreamLetsInWhomItKnows(t *testing.T) {
	clitest.ShortRunDir(t)
	here, there, stranger := heddle.NewDevice(t), heddle.NewDevice(t), heddle.NewDevice(t)
	_, at := there.Start(`echo: listening on (\S+) for 1 key`, "stream", "serve", "--name", "echo", "--to", clitest.EchoServer(t), "--listen", "127.0.0.1:0", "--allow", here.Key)
	for name, c := range map[string]struct {
		who           clitest.Device
		service, want string
		key           string
	}{
		"a stranger":      {stranger, "echo", "has to add --allow " + stranger.Key, there.Key},
		"a wrong server":  {here, "echo", "holds the key " + there.Key, stranger.Key},
		"a wrong service": {here, "files", `no service is called "files" here`, there.Key},
	} {
		args := append([]string{"stream", "dial", c.service, "--listen", "127.0.0.1:0", "--to", at[1], "--key", c.key, "--identity", c.who.File, "--patience", "30s"}, clitest.TwoPaths...)
		var said clitest.Spoken
		if code := heddle.Run(t.Context(), args, strings.NewReader(""), &said, &said); code != cli.ExitFailure || !strings.Contains(said.String(), c.want) {
			t.Errorf("%s: exit code %d, want %q in\n%s", name, code, c.want, &said)
		}
	}
}

func TestStreamSOCKS(t *testing.T) {
	clitest.ShortRunDir(t)
	here, there := heddle.NewDevice(t), heddle.NewDevice(t)
	_, at := there.Start(`web: listening on (\S+) for 1 key: SOCKS5`, "stream", "serve", "--name", "web", "--socks", "--allow-to", "127.0.0.1/32", "--listen", "127.0.0.1:0", "--allow", here.Key)
	args := append([]string{"stream", "dial", "web", "--socks", "127.0.0.1:0", "--to", at[1], "--key", there.Key, "--shares", "xor:2"}, clitest.TwoPaths...)
	_, up := here.Start(`web is up: listening on (\S+) \(SOCKS5\), to`, args...)
	target := net.TCPAddr{}
	if a, err := net.ResolveTCPAddr("tcp", clitest.EchoServer(t)); err != nil {
		t.Fatal(err)
	} else {
		target = *a
	}
	request := "\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01" + string([]byte{byte(target.Port >> 8), byte(target.Port)})
	if got := clitest.Echoed(t, up[1], request+"hello"); got != "\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00hello" {
		t.Errorf("%q", got)
	}
}

func TestSharedObservers(t *testing.T) {
	s := stripe.Status{Paths: []stripe.PathStatus{{Name: "a", Observer: "if:home"}, {Name: "b", Observer: "if:lte"}, {Name: "c", Observer: "if:home"}, {Name: "d"}, {Name: "e"}}}
	if got := SharedObservers(s); len(got) != 1 || got[0] != "the network at if:home sees a and c, and has what they carry together" {
		t.Errorf("%q", got)
	}
}

// A peer that refuses this device's key is told of with that key, whatever carries the stream.
func TestHintOfARefusedKey(t *testing.T) {
	here, there := heddle.NewDevice(t), heddle.NewDevice(t)
	for _, backend := range config.StripeBackends() {
		s := config.DefaultStripe()
		s.Backend, s.Identity, s.To, s.Key, s.Via = backend, here.File, "127.0.0.1:1", there.Key, []string{"a=if:lo"}
		d, err := NewDialer(t.Context(), s, "files", nil, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		if hint := errhint.Of(d.notLetIn(errors.New("remote error: tls: bad certificate"))); !strings.HasSuffix(hint, "--allow "+here.Key) {
			t.Errorf("backend %s: the hint is %q", backend, hint)
		}
	}
}

// A dial that fails gives an error, whatever carries the stream: a pool takes all else for a session.
func TestNoSessionIsAnError(t *testing.T) {
	here, there := heddle.NewDevice(t), heddle.NewDevice(t)
	for _, backend := range []string{config.BackendMPTCP, config.BackendMPTCPNAT} {
		s := config.DefaultStripe()
		s.Backend, s.Identity, s.To, s.Key, s.Via = backend, here.File, "127.0.0.1:1", there.Key, []string{"a=if:absent"}
		d, err := NewDialer(t.Context(), s, "files", nil, t.Output())
		if err != nil {
			t.Fatal(err)
		}
		if session, err := d.begin(t.Context()); err == nil {
			t.Errorf("backend %s: %v without an error", backend, session)
		}
	}
}
