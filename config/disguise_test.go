package config

import (
	"encoding/base64"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"heddle/disguise/cover"
	"heddle/disguise/handshake"
	"heddle/path"
)

// bridgeLine is that of a bridge that nobody runs.
func bridgeLine(t *testing.T, token []byte) string {
	t.Helper()
	id, err := handshake.NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	return handshake.Line{Address: netip.MustParseAddrPort("192.0.2.9:443"), Args: handshake.Args{Key: id.Public(), Token: token}}.String()
}

// bridgeFile is a client's bridge.toml with more lines.
func bridgeFile(t *testing.T, more string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "bridge.toml")
	if err := os.WriteFile(file, []byte("bridge = \""+bridgeLine(t, nil)+"\"\n"+more), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestDisguiseDial(t *testing.T) {
	good := `cover = "random:prefix=printable"
connections = 6
max-bytes-per-connection = "15kB"
listen = "127.0.0.1:1080"
via = ["home=src:192.0.2.7", "lte=src:192.0.2.8"]
schedule = "round-robin"
`
	d, err := LoadDisguiseDial(bridgeFile(t, good))
	if err != nil {
		t.Fatal(err)
	}
	o, err := d.Options()
	if err != nil || o.Bytes != 15_000 || o.Connections != 6 || len(o.Paths) != 2 || o.Paths[1].Name != "lte" || o.Schedule.Name != "round-robin" {
		t.Errorf("%+v, %v", o, err)
	}
	for more, want := range map[string]string{
		"connection = 3\n":                              "did you mean connections?",
		"connections = 99\n":                            "1 to 32",
		"cover = \"none\"\n":                            "no such cover",
		"cover = \"random:prefix\"\n":                   "no setting",
		"cover = \"random:prefix=emoji\"\n":             "no prefix",
		"max-bytes-per-connection = \"much\"\n":         "15kB",
		"max-bytes-per-connection = \"100\"\n":          "too few",
		"via = [\"home=nothing:x\"]\n":                  "no kind of path",
		"min-paths = 2\n":                               "of 1",
		"to = \"somewhere\"\n":                          "HOST:PORT",
		"schedule = \"best\"\n":                         "no schedule",
		"to = \"bridge\"\nsocks-users = \"/nowhere\"\n": "leave out one",
	} {
		if _, err := LoadDisguiseDial(bridgeFile(t, more)); err == nil || !strings.Contains(all(err), want) {
			t.Errorf("%q: %v, want %q", more, all(err), want)
		}
	}
}

// A bridge line names no file, so the file with the line of a website is whole only with --cover. As a path it is refused.
func TestDisguiseDialOfAWebsite(t *testing.T) {
	line, err := handshake.ParseLine(bridgeLine(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	line.Covers = []string{"https:pin=" + strings.Repeat("A", 43)}
	file := write(t, "bridge = \""+line.String()+"\"\nlisten = \"127.0.0.1:1080\"\n")
	d, err := LoadDisguiseDial(file)
	if err != nil {
		t.Fatal(all(err))
	}
	if err := d.Check(); err == nil || !strings.Contains(all(err), "no site") {
		t.Errorf("without a site: %v", all(err))
	}
	if _, err := path.New(path.Spec{Name: "b", Kind: "disguise", Arg: file}, path.Options{}); err == nil || !strings.Contains(all(err), "no site") {
		t.Errorf("a path without a site: %v", all(err))
	}
	site, err := filepath.Abs("../disguise/cover/web/testdata/site.db")
	if err != nil {
		t.Fatal(err)
	}
	d.Cover = cover.Specs{"https:site=" + site}
	if err := d.Check(); err != nil {
		t.Error(all(err))
	}
}

// all is the text of an error with its hints.
func all(err error) string {
	list, ok := err.(Problems)
	if !ok {
		if err == nil {
			return ""
		}
		what, hint := explain(err)
		return what + "; " + hint
	}
	var text []string
	for _, p := range list {
		text = append(text, p.What, p.Hint)
	}
	return strings.Join(text, "; ")
}

// A file with a token is its owner's alone, for the command and for a path.
func TestTokenIsKept(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bridge.toml")
	secret := []byte("sixteen secret b")
	text := "bridge = \"" + bridgeLine(t, secret) + "\"\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	spec := path.Spec{Name: "b", Kind: "disguise", Arg: file}
	_, dialErr := LoadDisguiseDial(file)
	_, pathErr := path.New(spec, path.Options{})
	for _, err := range []error{dialErr, pathErr} {
		if err == nil || !strings.Contains(all(err), "chmod 600") || strings.Contains(all(err), base64.RawURLEncoding.EncodeToString(secret)) {
			t.Errorf("mode 0644: %v", all(err))
		}
	}
	if err := os.Chmod(file, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := path.New(spec, path.Options{}); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte(text+"\nunknown = \""+base64.RawURLEncoding.EncodeToString(secret)+"\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := path.New(spec, path.Options{}); err == nil || !strings.Contains(all(err), "unknown") || strings.Contains(all(err), base64.RawURLEncoding.EncodeToString(secret)) {
		t.Errorf("an unknown key: %v", all(err))
	}
}

// A path takes the same file as the command, and refuses one that would leave by several paths.
func TestPathTakesTheFileOfDial(t *testing.T) {
	spec := path.Spec{Name: "b", Kind: "disguise", Arg: bridgeFile(t, "listen = \"127.0.0.1:1080\"\nschedule = \"uniform\"\n")}
	if _, err := path.New(spec, path.Options{}); err != nil {
		t.Error(all(err))
	}
	spec.Arg = bridgeFile(t, `via = ["home=src:192.0.2.7"]`)
	if _, err := path.New(spec, path.Options{}); err == nil || !strings.Contains(all(err), "one way") {
		t.Errorf("a file with via: %v", all(err))
	}
	spec.Arg = filepath.Join(t.TempDir(), "absent.toml")
	if _, err := path.New(spec, path.Options{}); err == nil || !strings.Contains(all(err), "no such file") {
		t.Errorf("no file: %v", all(err))
	}
}

// A bridge behind another web server listens for it alone, and needs no certificate.
func TestDisguiseServeBehind(t *testing.T) {
	dir := t.TempDir()
	if _, _, err := handshake.LoadOrCreateIdentity(filepath.Join(dir, "key.pem")); err != nil {
		t.Fatal(err)
	}
	site, err := filepath.Abs("../disguise/cover/web/testdata/site.db")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "bridge.toml")
	for at, flag := range map[string]string{"127.0.0.1:8081": "behind", "10.0.0.1:80": "behind", "[fd00::1]:80": "behind", "unix:/run/x.sock": "behind", "": "listen"} {
		text := "identity = \"key.pem\"\ndestinations = true\ncover = [\"https:site=" + site + "\"]\n"
		if at != "" {
			text += "visitor-header = \"X-Forwarded-For\"\norigin = \"http://127.0.0.1:8080\"\nbehind = \"" + at + "\"\n"
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := LoadDisguiseServe(file)
		if err != nil {
			t.Fatal(at, all(err))
		}
		name, doors := s.Doors()
		if name != flag || at != "" && !slices.Equal(doors, []string{at}) {
			t.Errorf("%q: --%s %q", at, name, doors)
		}
		if o, err := s.Options(); (err == nil && o.Behind) != (at != "") || at == "" && !strings.Contains(all(err), "no certificate") {
			t.Errorf("%q: %v", at, err)
		}
	}
}

func TestDisguiseServe(t *testing.T) {
	dir := t.TempDir()
	load := func(text string) (DisguiseServe, error) {
		file := filepath.Join(dir, "bridge.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return LoadDisguiseServe(file)
	}
	site, err := filepath.Abs("../disguise/cover/web/testdata/site.db")
	if err != nil {
		t.Fatal(err)
	}
	behind := "destinations = true\ncover = [\"https:site=" + site + "\"]\n"
	for text, want := range map[string]string{
		"destinations = true\ncover = [\"random\", \"http:site=" + site + "\"]\n":                  "leaves no room",
		"destinations = true\ncover = [\"http:site=" + site + "\", \"https:site=" + site + "\"]\n": "another port",
		"":                 "leads nowhere",
		"to = \"x\"\n":     "HOST:PORT",
		"to = \"unix:\"\n": "no file",
		"to = \"a:1\"\nallow = [\"10.0.0.0/8\"]\n":                                 "cannot ask",
		"destinations = true\nallow = [\"x\"]\n":                                   "192.0.2.0/24",
		"destinations = true\ncover = []\n":                                        "no cover",
		"destinations = true\ncover = [\"random\", \"random:prefix=printable\"]\n": "twice",
		"destinations = true\nlisten = [\"x\"]\n":                                  "HOST:PORT",
		"destinations = true\naddress = [\"a:1\"]\n":                               "not possible",
		"destinations = true\nmax-links = 0\n":                                     "less than 1",
		"destination = true\n":                                                     "did you mean destinations?",
		behind + "behind = \"192.0.2.9:80\"\n":                                     "others than the web server reach",
		behind + "behind = \":80\"\n":                                              "no address and port",
		behind + "behind = \"0.0.0.0:80\"\n":                                       "others than the web server reach",
		behind + "behind = \"unix:\"\n":                                            "no file",
		behind + "behind = \"127.0.0.1:80\"\nlisten = [\":80\"]\n":                 "listens for that alone",
		behind + "visitor-header = \"X-Real-IP\"\n":                                "could say what they like",
		behind + "behind = \"[::1]:80\"\nvisitor-header = \"a b\"\n":               "no name of a header",
		behind + "origin = \"127.0.0.1:8080\"\n":                                   "no address of a web server",
		behind + "origin = \"http://127.0.0.1:8080/x\"\n":                          "without a path",
		"to = \"a:1\"\norigin = \"http://127.0.0.1:8080\"\n":                       "no website",
		"to = \"a:1\"\nacme = \"x\"\n":                                             "needs no certificate",
		behind + "acme = \"x\"\nbehind = \"127.0.0.1:80\"\n":                       "another certificate",
		behind + "acme = \"x\"\nacme-authority = \"http://a.example/dir\"\n":       "no URL with https",
		behind + "acme-authority = \"https://a.example/dir\"\n":                    "where the certificate is kept",
		"destinations = true\nacme = \"x\"\ncover = [\"https:site=" + site + ":pin=" + strings.Repeat("A", 43) + "\"]\n": "another certificate",
		"to = \"a:1\"\nbehind = \"127.0.0.1:80\"\n":                                                   "the cover https can",
		"to = \"a:1\"\nbehind = \"127.0.0.1:80\"\ncover = [\"http:site=" + site + "\"]\n":             "the cover https can",
		"to = \"a:1\"\ncover = [\"random:port=80\"]\n":                                                "nothing is at the bridge's address",
		"to = \"a:1\"\ncover = [\"random\", \"embed:port=0\"]\n":                                      "no port",
		"to = \"a:1\"\ncover = [\"random\", \"embed:transport=udp:port=80\"]\n":                       "no port",
		"to = \"a:1\"\ncover = [\"random\", \"http:site=" + site + ":port=80\", \"embed:port=80\"]\n": "no room for others",
		"to = \"a:1\"\nbehind = \"127.0.0.1:80\"\ncover = [\"https:site=" + site + ":port=80\"]\n":    "leave out port",
	} {
		if _, err := load(text); err == nil || !strings.Contains(all(err), want) {
			t.Errorf("%q: %v, want %q", text, all(err), want)
		}
	}
	s, err := load("destinations = true\nidentity = \"key.pem\"\ntokens = \"tokens\"\n")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Options(); err == nil || !strings.Contains(all(err), "heddle disguise keys") {
		t.Errorf("without an identity: %v", all(err))
	}
	if _, _, err := handshake.LoadOrCreateIdentity(filepath.Join(dir, "key.pem")); err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]string{"": "everybody", "# none\n": "everybody", "!\n": "line 1", strings.Repeat("A", 40) + "\n": "line 1"} {
		if err := os.WriteFile(filepath.Join(dir, "tokens"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Options(); err == nil || !strings.Contains(all(err), want) {
			t.Errorf("tokens %q: %v", content, all(err))
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "tokens"), []byte("# ann\nc2VjcmV0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := s.Options()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "bridge-state")); err == nil {
		t.Error("the state is opened before it is needed")
	}
	if err := o.Open(); err != nil {
		t.Fatal(err)
	}
	defer o.Replays.Close()
	if len(o.Covers) != 1 || o.Targets == nil || o.Target != nil {
		t.Errorf("%+v", o)
	}
	s.Cover = []string{"random", "embed:port=80:weight=2", "http:site=" + site + ":port=81", "embed:transport=udp"}
	if o, err := s.Options(); err != nil || len(o.Covers) != 1 || len(o.DatagramCovers) != 1 || len(o.Apart) != 2 || o.Apart[80][2] == nil || o.Apart[81][3] == nil {
		t.Errorf("%+v, %v", o, all(err))
	}
}

// A bridge line carries what both sides need, and no file names of the bridge.
func TestBridgeLinesAreForClients(t *testing.T) {
	pinned := "https:pin=" + strings.Repeat("A", 43)
	d := DisguiseBridge{Address: []string{"192.0.2.9:443"}, Cover: []string{"embed:traces=/a/b.db", "embed:traces=/a/b.db:transport=udp", "random:prefix=printable",
		pinned + ":site=/a:certificate=/b:key=/c"}}
	l, err := handshake.ParseLine(d.Lines(handshake.PublicKey{1}, nil)[0].String())
	if err != nil || !slices.Equal(l.Covers, []string{"embed", "embed:transport=udp", "random:prefix=printable", pinned}) {
		t.Errorf("%q: %v", l.Covers, err)
	}
}

// With the cover https a bridge needs a certificate, and a client takes the pin of the line and one connection for each path.
func TestWebsiteInsideTLS(t *testing.T) {
	dir := t.TempDir()
	site, err := filepath.Abs("../disguise/cover/web/testdata/site.db")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := handshake.LoadOrCreateIdentity(filepath.Join(dir, "bridge.pem")); err != nil {
		t.Fatal(err)
	}
	s := DefaultDisguiseServe()
	s.Destinations, s.Identity, s.Cover = true, filepath.Join(dir, "bridge.pem"), []string{"https:site=" + site}
	if _, err := s.Options(); err == nil || !strings.Contains(all(err), "no certificate") {
		t.Errorf("without a certificate: %v", all(err))
	}
	line := handshake.Line{Address: netip.MustParseAddrPort("192.0.2.9:443"), Args: handshake.Args{Key: handshake.PublicKey{1}, Covers: []string{"https:pin=x"}}}
	d := DefaultDisguiseDial()
	d.Line, d.Cover, d.Listen = line.String(), cover.Specs{"https:site=" + site}, "127.0.0.1:1080"
	if _, err := d.Options(); err == nil || !strings.Contains(all(err), "no pin") {
		t.Errorf("the pin of the line is not used: %v", all(err))
	}
	line.Covers = nil
	d.Line = line.String()
	for want, via := range [][]string{nil, {"home=src:192.0.2.7"}, {"home=src:192.0.2.7", "lte=src:192.0.2.8"}} {
		d.Via = via
		if o, err := d.Options(); err != nil || o.Connections != max(want, 1) {
			t.Errorf("%d connections over %v: %v", o.Connections, via, all(err))
		}
	}
}

// The example holds, as it is and with each key that is commented out, and what it shows as a default is one.
func TestBridgeExample(t *testing.T) {
	text, err := os.ReadFile("../dist/bridge.toml")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^#([a-z])`).ReplaceAllString(string(text), "$1")
	for _, text := range []string{string(text), all} {
		s, err := LoadDisguiseServe(write(t, text))
		if err != nil {
			t.Fatal(err)
		}
		s.Destinations, s.To, s.Allow, s.Deny, s.Identity, s.State, s.Tokens, s.Address = false, "", nil, nil, "", "", "", nil
		if want := DefaultDisguiseServe(); !reflect.DeepEqual(s, want) {
			t.Errorf("%+v, defaults %+v", s, want)
		}
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[DisguiseServe]()) {
		if key := field.Tag.Get("toml"); key != "" && !strings.Contains(all, "\n"+key+" = ") {
			t.Errorf("the example does not show %s", key)
		}
	}
}
