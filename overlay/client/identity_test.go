package client

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"testing"

	"heddle/identity"
	"heddle/path"
)

// A path proves the key of the identity that it is told, and else that of this user.
func TestWhichKeyIsProved(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HEDDLE_HOME", home)
	own, _, err := identity.LoadOrCreate(filepath.Join(home, "identity.pem"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "other.pem")
	other, _, err := identity.LoadOrCreate(file)
	if err != nil {
		t.Fatal(err)
	}
	node, proved := fresh(t), make(chan identity.Key, 1)
	config, err := node.Server(func(k identity.Key) error { proved <- k; return nil }, Protocol)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = tls.Server(c, config).Handshake()
			c.Close()
		}
	}()
	dir, err := Dir()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (Pass{Name: "fake", Key: node.Key(), Addresses: []string{l.Addr().String()}}).Save(dir); err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]identity.Key{"": own.Key(), file: other.Key()} {
		way, err := path.New(path.Spec{Name: "a", Kind: Scheme, Arg: "fake"}, path.Options{Identity: given})
		if err != nil {
			t.Fatal(err)
		}
		if c, err := way.(path.Dialer).Dial(t.Context(), path.At(target)); err == nil { // the node ends it
			c.Close()
		}
		if got := <-proved; got != want {
			t.Errorf("with the identity %q the node sees %v, and not %v", given, got, want)
		}
	}
	way, err := path.New(path.Spec{Name: "a", Kind: Scheme, Arg: "fake"}, path.Options{Identity: filepath.Join(home, "absent.pem")})
	if err != nil {
		t.Fatal(err)
	}
	if info := way.Describe(); info.Ready || info.Why == "" {
		t.Errorf("with an identity that is absent: %+v", info)
	}
}
