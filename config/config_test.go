package config

import (
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"heddle/path"
	"heddle/proxy/users"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Each testdata/bad-*.toml has, beside it, all that `heddle check` says of it.
func TestProblems(t *testing.T) {
	t.Setenv("HEDDLE_HOME", t.TempDir()) // no board is kept there
	files, err := filepath.Glob("testdata/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	testdata, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			file = filepath.Base(file)
			t.Chdir(filepath.Dir(write(t, "")))
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			_, problems := Check(file)
			var got strings.Builder
			for _, p := range problems {
				fmt.Fprintf(&got, "%s\n%s", p, p.Excerpt())
				if p.Hint != "" {
					fmt.Fprintf(&got, "hint: %s\n", p.Hint)
				}
			}
			said := strings.ReplaceAll(got.String(), "kinds: "+strings.Join(path.Kinds(), ", "), "kinds: ...")
			compare(t, filepath.Join(testdata, strings.TrimSuffix(file, ".toml")+".golden"), said)
			_, err = Load(file)
			if wantError := len(problems.Errors()) > 0; (err != nil) != wantError {
				t.Errorf("Load gives %v; want an error: %v", err, wantError)
			}
		})
	}
}

func compare(t *testing.T, golden, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s(go test -update writes it anew)", got, want)
	}
}

// A WireGuard file with keys that are nobody's.
var office = fmt.Sprintf("[Interface]\nPrivateKey = %[1]s\nAddress = 10.0.0.2/32\n[Peer]\nPublicKey = %[1]s\n"+
	"Endpoint = vpn.example.com:51820\nAllowedIPs = 0.0.0.0/0\n",
	base64.StdEncoding.EncodeToString([]byte(strings.Repeat("heddle42", 4))))

func write(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"heddle.toml": text, "office.conf": office} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "heddle.toml")
}

func TestDefaultsReachTables(t *testing.T) {
	file := write(t, `
via = ["home=if:eth0", "lte=if:wwan0"]
every = "50p"
seed = 0x10
capture = "seen"

[[up]]
file = "office.conf"
via = ["home", "a=src:192.0.2.7", "lte"]
every = "100ms"
min-paths = 3
kill-switch = false

[[split]]
listen = "127.0.0.1:51820"
to = "vpn.example.com:51820"
idle = "90s"
alpha = 2
`)
	c, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	up, split := c.Ups[0], c.Splits[0]
	if got := strings.Join(up.Via, " "); got != "home=if:eth0 a=src:192.0.2.7 lte=if:wwan0" {
		t.Errorf("up.via = %s", got)
	}
	if up.Every != "100ms" || split.Every != "50p" || *up.Seed != 16 || up.MinPaths != 3 || split.MinPaths != 0 {
		t.Errorf("up = %+v, split = %+v", up, split)
	}
	if up.KillSwitch || up.SessionName() != "office" || split.SessionName() != "split-51820" {
		t.Errorf("up = %+v, split = %+v", up, split)
	}
	if split.Idle != 90*time.Second || split.Alpha != 2 || up.Alpha != 1 || split.MaxSessions != DefaultSplit(Paths{}).MaxSessions {
		t.Errorf("split = %+v", split)
	}
	dir := filepath.Dir(file)
	if up.File != filepath.Join(dir, "office.conf") || split.Capture != filepath.Join(dir, "seen", "split-51820") ||
		up.Capture != filepath.Join(dir, "seen", "office") {
		t.Errorf("file = %s, capture = %s", up.File, split.Capture)
	}
	if problems := c.Validate(); len(problems) > 0 {
		t.Errorf("a loaded config is not valid: %v", problems)
	}
	o, err := up.Options()
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Via) != 3 || o.Via[1].Arg != "192.0.2.7" || o.Schedule.Every.Period != 100*time.Millisecond ||
		o.Schedule.Name != "weighted" || *o.Schedule.Seed != 16 || o.MinPaths != 3 {
		t.Errorf("options = %+v", o)
	}
}

func TestOptionsRefuse(t *testing.T) {
	good := DefaultPaths()
	good.Via = []string{"home=if:eth0", "lte=if:wwan0"}
	if _, err := good.Options(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		change func(*Paths)
		want   string
	}{
		{"no path", func(p *Paths) { p.Via = nil }, "--via: no path is given"},
		{"bad path", func(p *Paths) { p.Via[0] = "eth0" }, `--via: path "eth0"`},
		{"argument", func(p *Paths) { p.Via[0] = "a=src:here" }, `--via: path a: "here" is no address`},
		{"same name", func(p *Paths) { p.Via[1] = "home=if:eth1" }, "two paths are called home"},
		{"schedule", func(p *Paths) { p.Schedule = "fair" }, `--schedule: no schedule is called "fair"`},
		{"every", func(p *Paths) { p.Every = "often" }, "--every"},
		{"alpha", func(p *Paths) { p.Alpha = 0 }, "--alpha: 0 is not above 0"},
		{"min-paths", func(p *Paths) { p.MinPaths = 3 }, "--min-paths: 3 healthy paths are asked for, of 2 that are given"},
	} {
		p := good
		p.Via = append([]string(nil), good.Via...)
		c.change(&p)
		_, err := p.Options()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %s", c.name, err, c.want)
		}
		if _, hint := explain(err); hint == "" {
			t.Errorf("%s: no hint", c.name)
		}
	}
}

func TestOneObserverWarns(t *testing.T) {
	p := DefaultPaths()
	p.Via = []string{"home=if:eth0", "again=if:eth0"}
	if _, err := p.Options(); err != nil {
		t.Errorf("two paths on one observer are refused: %v", err)
	}
	if found := p.findings(); len(found) != 1 || !found[0].warning || !strings.Contains(found[0].what, "one observer sees both") {
		t.Errorf("%+v", found)
	}
}

func TestFileThatIsNone(t *testing.T) {
	dir := t.TempDir()
	long := filepath.Join(dir, "long.toml")
	if err := os.WriteFile(long, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{
		filepath.Join(dir, "none.toml"): "no such file",
		dir:                             "it is a directory",
		long:                            "it is longer than",
	} {
		_, err := Load(file)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%s) = %v; want %s", file, err, want)
		}
	}
}

func TestWritableByOthersWarns(t *testing.T) {
	file := write(t, "via = [\"home=if:eth0\"]\n[[up]]\nfile = \"office.conf\"\n")
	if _, problems := Check(file); len(problems) != 0 {
		t.Fatalf("problems: %v", problems)
	}
	if err := os.Chmod(file, 0o620); err != nil {
		t.Fatal(err)
	}
	_, problems := Check(file)
	if len(problems) != 1 || problems[0].Severity != SeverityWarning || !strings.Contains(problems[0].What, "others can write") {
		t.Errorf("problems: %v", problems)
	}
}

// The example that people start from holds, as it is and with each key that is commented out.
func TestExample(t *testing.T) {
	t.Setenv("HEDDLE_HOME", t.TempDir())
	text, err := os.ReadFile("../dist/heddle.toml")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^#([a-z[])`).ReplaceAllString(string(text), "$1")
	for _, text := range []string{string(text), all} {
		file := write(t, text)
		if _, err := users.Add(filepath.Join(filepath.Dir(file), "users"), "ann"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(file), "lte.secret"), []byte("token\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c, problems := Check(file)
		for _, p := range problems {
			t.Errorf("%s\n%s", p, p.Excerpt())
		}
		// What it shows as a default is one, so that uncommenting a key changes nothing; the rest are examples.
		if len(c.Ups) != 1 || len(c.Splits) != 1 || len(c.Serves) != 1 || len(c.Dials) != 1 {
			t.Fatalf("%d tunnels, %d relays, %d served, %d dialled", len(c.Ups), len(c.Splits), len(c.Serves), len(c.Dials))
		}
		up, split := c.Ups[0], c.Splits[0]
		paths := c.Paths
		paths.Via, paths.Seed, paths.Capture = nil, nil, ""
		paths.Path, paths.HandshakeVia, paths.Rules, paths.Secret, paths.Identity = nil, "", nil, nil, ""
		up.Name, up.File, up.Socks, up.SocksUsers, up.Paths = "", "", "", "", Paths{}
		split.Name, split.Listen, split.To, split.Paths = "", "", "", Paths{}
		serve, dial := c.Serves[0], c.Dials[0]
		serve.Socks, serve.Allow, serve.To, serve.Identity, serve.Keylog, serve.Board, serve.Address, serve.AllowTo, serve.DenyTo = false, nil, "", "", "", "", nil, nil, nil
		if want := DefaultStreamServe(); !reflect.DeepEqual(serve, want) {
			t.Errorf("serve %+v, defaults %+v", serve, want)
		}
		dial.Name, dial.Listen, dial.Socks, dial.To, dial.Key, dial.Identity, dial.Keylog, dial.Board = "", "", "", "", "", "", "", ""
		dial.Via, dial.Path, dial.Secret = nil, nil, nil
		if want := DefaultStreamDial(); !reflect.DeepEqual(dial, want) {
			t.Errorf("dial %+v, defaults %+v", dial, want)
		}
		if want := DefaultPaths(); !reflect.DeepEqual(paths, want) {
			t.Errorf("paths %+v, defaults %+v", paths, want)
		}
		if want := DefaultUp(Paths{}); !reflect.DeepEqual(up, want) {
			t.Errorf("up %+v, defaults %+v", up, want)
		}
		if want := DefaultSplit(Paths{}); !reflect.DeepEqual(split, want) {
			t.Errorf("split %+v, defaults %+v", split, want)
		}
	}
	for _, table := range []reflect.Type{reflect.TypeFor[Paths](), reflect.TypeFor[Up](), reflect.TypeFor[Split](), reflect.TypeFor[StreamServe](), reflect.TypeFor[StreamDial]()} {
		for _, key := range fieldNames(table) {
			if !regexp.MustCompile(`(?m)^` + key + ` = `).MatchString(all) {
				t.Errorf("the example lacks %s", key)
			}
		}
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	for _, text := range []string{"PrivateKey = YNxT9cGuvA=", "private-key = \"YNxT9cGuvA=\"", "[[up]]\npreshared_key = \"YNxT9cGuvA=\""} {
		_, problems := Check(write(t, text))
		if len(problems) == 0 {
			t.Errorf("%s: no problem", text)
		}
		for _, p := range problems {
			if strings.Contains(p.String()+p.Excerpt()+p.Hint, "YNxT9cGuvA") {
				t.Errorf("%s: shown in %s\n%s", text, p, p.Excerpt())
			}
		}
	}
}

func FuzzCheck(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.toml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := Default()
		doc := decode("fuzz.toml", data, &c)
		resolve(&c, ".")
		validate(c, doc, false)
		lines := strings.Count(string(data), "\n") + 1
		for _, p := range doc.sorted() {
			if p.Line > lines || p.What == "" {
				t.Errorf("%+v in %d lines", p, lines)
			}
			p.Excerpt()
		}
	})
}

// What a key was called before still sets it, and what is wrong is said by its name of today.
func TestOldSpellings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "heddle.toml")
	write := func(lines ...string) {
		t.Helper()
		text := "via = [\"a=if:lo\", \"b=src:127.0.0.1\"]\n[[split]]\nto = \"192.0.2.1:51820\"\n" + strings.Join(lines, "\n") + "\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`plane = ["route"]`)
	c, err := Load(file)
	if err != nil || !slices.Equal(c.Splits[0].Backend, []string{"route"}) {
		t.Errorf("%+v, %v", c.Splits, err)
	}
	write(`plane = ["warp"]`)
	_, err = Load(file)
	problems, _ := errors.AsType[Problems](err)
	if len(problems) != 1 || problems[0].Line != 4 || !strings.Contains(problems[0].String(), `no backend is called "warp"`) {
		t.Errorf("%v", err)
	}
	for _, both := range [][]string{{`plane = ["route"]`, `backend = ["kernel"]`}, {`backend = ["kernel"]`, `plane = ["route"]`}} {
		write(both...)
		_, err = Load(file)
		problems, _ := errors.AsType[Problems](err)
		if len(problems) != 1 || problems[0].Line != 5 || !strings.Contains(problems[0].String(), "backend and its old spelling plane are both given") {
			t.Errorf("%q: %v", both, err)
		}
	}
}
