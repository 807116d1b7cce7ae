package config

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"heddle/path"
)

// streamsOnly is a path that carries no datagrams, as a disguised link.
type streamsOnly struct{ name string }

func (p streamsOnly) Describe() path.Info {
	return path.Info{Name: p.name, Kind: "streamsonly", Ready: true}
}

func (p streamsOnly) Dial(context.Context, path.Target) (net.Conn, error) {
	return nil, net.ErrClosed
}

func init() {
	path.Register(path.Kind{Scheme: "streamsonly", Carries: path.Streams, New: func(s path.Spec, _ path.Options) (path.Path, error) {
		return streamsOnly{s.Name}, nil
	}})
}

const peerKey = "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// What a path carries decides which sessions may use it, by flags and by file alike.
func TestPathsThatCarryTheWrongThing(t *testing.T) {
	t.Setenv("HEDDLE_HOME", t.TempDir())
	split := func(via ...string) error {
		p := DefaultSplit(DefaultPaths())
		p.Listen, p.To, p.Via = "127.0.0.1:1", "192.0.2.1:2", via
		return p.Check()
	}
	dial := func(via ...string) error {
		d := DefaultStreamDial()
		d.Name, d.Listen, d.To, d.Key, d.Via = "web", "127.0.0.1:1", "192.0.2.1:2", peerKey, via
		return d.Check()
	}
	const direct, bare, bridge = "a=src:192.0.2.7", "m=masque:https://proxy.example", "b=streamsonly:x"
	for _, c := range []struct {
		what      string
		err       error
		why, hint string // of the error; empty for none
	}{
		{"split", split(direct, bare), "", ""},
		{"split", split(direct, bridge), "path b: it carries streams, and this session needs datagrams", "kinds that carry datagrams: disguise, if, masque, node, ports, socks5, src, wireguard"},
		{"split, over a base", split(direct, "p=socks5:192.0.2.3:1@c", "c=streamsonly:x"), "path p: it carries streams", "let it ride another one"},
		{"split, a tunnel that cannot be", split(direct, "m=masque:https://proxy.example@c", "c=streamsonly:x"), "the tunnel m needs datagrams", "kinds that carry datagrams"},
		{"dial", dial(direct, bridge), "", ""},
		{"dial, over a base", dial("p=socks5:192.0.2.3:1@c", "c=streamsonly:x"), "", ""},
		{"dial", dial(direct, bare), "path m: it carries datagrams, and a stream needs streams", "kinds that carry streams: disguise, if, node, ports, socks5, src, streamsonly, wireguard"},
	} {
		if c.why == "" {
			if c.err != nil {
				t.Errorf("%s: %v", c.what, c.err)
			}
			continue
		}
		if c.err == nil {
			t.Errorf("%s: no error, want %q", c.what, c.why)
			continue
		}
		why, hint := explain(c.err)
		if !strings.Contains(why, c.why) || !strings.Contains(hint, c.hint) {
			t.Errorf("%s: %q (%s); want %q (%s)", c.what, why, hint, c.why, c.hint)
		}
	}
	connect := DefaultPaths()
	connect.Via, connect.Needs = []string{bridge}, path.Streams
	if _, err := connect.Options(); err != nil {
		t.Errorf("connect: %v", err)
	}
}

// Paths before the first table serve all tables: only the one that uses a path says whether it fits.
func TestTablesTakeThePathsThatFit(t *testing.T) {
	t.Setenv("HEDDLE_HOME", t.TempDir())
	file := write(t, `
via = ["home=src:192.0.2.7", "bridge=streamsonly:x", "m=masque:https://proxy.example"]

[[split]]
listen = "127.0.0.1:51820"
to = "192.0.2.1:51820"

[[dial]]
name = "web"
listen = "127.0.0.1:8080"
to = "192.0.2.1:4470"
key = "`+peerKey+`"
`)
	_, problems := Check(file)
	var said []string
	for _, p := range problems.Errors() {
		said = append(said, p.Key+": "+p.What)
	}
	want := []string{"split[0].via: path bridge: it carries streams, and this session needs datagrams",
		"dial[0].via: path m: it carries datagrams, and a stream needs streams"}
	if strings.Join(said, "\n") != strings.Join(want, "\n") {
		t.Errorf("said\n%s\nwant\n%s", strings.Join(said, "\n"), strings.Join(want, "\n"))
	}
}

// Each kind makes paths that carry what it says.
func TestKindsCarryWhatTheySay(t *testing.T) {
	conf := filepath.Join(filepath.Dir(write(t, "")), "office.conf")
	args := map[string]string{"if": "lo", "ports": "lo", "src": "127.0.0.1", "wireguard": conf, "socks5": "127.0.0.1:1",
		"masque": "https://proxy.example", "node": "tokyo", "disguise": bridgeFile(t, ""), "streamsonly": "x"}
	for _, scheme := range path.Kinds() {
		p, err := path.New(path.Spec{Name: "p", Kind: scheme, Arg: args[scheme]}, path.Options{})
		if err != nil {
			t.Errorf("%s: %v", scheme, err)
			continue
		}
		if got := path.CarriesOf(p); got != path.KindCarries(scheme) {
			t.Errorf("%s: paths carry %v, the kind says %v", scheme, got, path.KindCarries(scheme))
		}
	}
}

// The table of docs/paths.md has each kind, with what it carries.
func TestTableOfKindsInDocs(t *testing.T) {
	text, err := os.ReadFile("../docs/paths.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, scheme := range path.Kinds() {
		if scheme == "streamsonly" {
			continue
		}
		row := regexp.MustCompile("(?m)^\\| `" + scheme + ":` \\|.*\\| " + path.KindCarries(scheme).String() + " \\|")
		if !row.Match(text) {
			t.Errorf("no row says that %s: carries %v", scheme, path.KindCarries(scheme))
		}
	}
}
