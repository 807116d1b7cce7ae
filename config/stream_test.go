package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"heddle/board"
	"heddle/identity"
	"heddle/overlay/client"
)

func someKey(t *testing.T) string {
	t.Helper()
	id, err := identity.New()
	if err != nil {
		t.Fatal(err)
	}
	return id.Key().String()
}

func goodDial(t *testing.T) StreamDial {
	d := DefaultStreamDial()
	d.Name, d.Listen, d.To, d.Key = "files", "127.0.0.1:2222", "192.0.2.1:4470", someKey(t)
	d.Via = []string{"a=src:192.0.2.7", "b=src:192.0.2.8", "c=if:eth0"}
	return d
}

func TestStreamDialRefuses(t *testing.T) {
	if err := goodDial(t).Check(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*StreamDial)
		want   string
	}{
		"no path":          {func(d *StreamDial) { d.Via = nil }, "--via: no path is given"},
		"bad path":         {func(d *StreamDial) { d.Via[0] = "x" }, `--via: path "x"`},
		"same name":        {func(d *StreamDial) { d.Via[1] = "a=if:eth1" }, "two paths are called a"},
		"no peer":          {func(d *StreamDial) { d.To = "" }, "--to"},
		"no port":          {func(d *StreamDial) { d.To = "files.example" }, "--to"},
		"no key":           {func(d *StreamDial) { d.Key = "" }, "--key"},
		"schedule":         {func(d *StreamDial) { d.Schedule = "round-robin" }, "--schedule: no schedule is called"},
		"segment":          {func(d *StreamDial) { d.Segment = 1 }, "--segment"},
		"shares":           {func(d *StreamDial) { d.Shares = "3of2" }, "--shares"},
		"other shares":     {func(d *StreamDial) { d.Shares = "2of4" }, "4 shares, and there are 3 paths"},
		"min-paths":        {func(d *StreamDial) { d.MinPaths = 4 }, "--min-paths"},
		"patience":         {func(d *StreamDial) { d.Patience = 0 }, "--patience"},
		"listen nowhere":   {func(d *StreamDial) { d.Listen = "" }, "--listen"},
		"bad listen":       {func(d *StreamDial) { d.Listen = "2222" }, "--listen"},
		"bad socks":        {func(d *StreamDial) { d.Socks = "x" }, "--socks"},
		"users of none":    {func(d *StreamDial) { d.SocksUsers = "users" }, "--socks-users: it is for a SOCKS5 proxy"},
		"no such users":    {func(d *StreamDial) { d.Socks, d.SocksUsers = "127.0.0.1:1080", "/nonexistent/users" }, "--socks-users"},
		"warm":             {func(d *StreamDial) { d.Warm = -1 }, "--warm"},
		"name":             {func(d *StreamDial) { d.Name = "../x" }, "--name"},
		"backend unknown":  {func(d *StreamDial) { d.Backend = "warp" }, "--backend: no backend is called"},
		"backend's shares": {func(d *StreamDial) { d.Backend, d.Shares = BackendMPTCP, "2of3" }, "the kernel has its own schedule"},
		"weight unasked":   {func(d *StreamDial) { d.Weight = []string{"a=1", "b=1", "c=1"} }, "--weight: the schedule is not weighted"},
		"weight missing":   {func(d *StreamDial) { d.Schedule, d.Weight = "weighted", []string{"a=1", "b=1"} }, "path c has none"},
		"weight unknown":   {func(d *StreamDial) { d.Schedule, d.Weight = "weighted", []string{"a=1", "b=1", "c=1", "d=1"} }, "not there"},
		"weight zero":      {func(d *StreamDial) { d.Schedule, d.Weight = "weighted", []string{"a=0"} }, "above 0"},
	} {
		d := goodDial(t)
		c.change(&d)
		err := d.Check()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		} else if _, hint := explain(err); hint == "" {
			t.Errorf("%s: no hint: %v", name, err)
		}
	}
}

func TestStripeOptions(t *testing.T) {
	d := goodDial(t)
	d.Schedule, d.Weight, d.Shares = "weighted", []string{"c=3", "a=1", "b=2"}, "none"
	o, _, err := d.Options()
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Paths) != 3 || o.Paths[2].Name != "c" || !reflect.DeepEqual(o.Weights, []float64{1, 2, 3}) || o.Peer.String() != d.Key || o.Patience != 30*time.Second {
		t.Errorf("%+v", o)
	}
	d.Via[0] = "m=masque:https://proxy.example"
	d.Weight, d.Schedule = nil, ""
	if _, _, err := d.Options(); err == nil || !strings.Contains(err.Error(), "needs streams") {
		t.Errorf("a path without TCP: %v", err)
	}
}

// Paths by nodes prove the key of the identity that is named, for streams and for what is split.
func TestIdentityOfPaths(t *testing.T) {
	t.Setenv("HEDDLE_HOME", t.TempDir())
	dir, err := client.Dir()
	if err != nil {
		t.Fatal(err)
	}
	id, err := identity.New()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (client.Pass{Name: "tokyo", Key: id.Key(), Addresses: []string{"192.0.2.9:7443"}}).Save(dir); err != nil {
		t.Fatal(err)
	}
	d := goodDial(t)
	d.Identity, d.Via[0] = filepath.Join(dir, "another.pem"), "a=node:tokyo"
	o, _, err := d.Options()
	if err != nil {
		t.Fatal(err)
	}
	if why := o.Paths[0].Path.Describe().Why; !strings.Contains(why, "another.pem") {
		t.Errorf("%s: another identity than the one that is named was looked for: %s", o.Paths[0].Name, why)
	}
	p := DefaultPaths()
	p.Via, p.Identity = d.Via, "me.pem"
	if o, err := p.Options(); err != nil || o.Identity != "me.pem" {
		t.Errorf("%q, %v", o.Identity, err)
	}
}

func TestStreamServeRefuses(t *testing.T) {
	good := DefaultStreamServe()
	good.To, good.Allow = "127.0.0.1:22", []string{someKey(t)}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*StreamServe)
		want   string
	}{
		"nobody":       {func(s *StreamServe) { s.Allow = nil }, "--allow: nobody may come in"},
		"no key":       {func(s *StreamServe) { s.Allow = []string{"me"} }, "--allow"},
		"nothing":      {func(s *StreamServe) { s.To = "" }, "--to: nothing says what is served"},
		"bad to":       {func(s *StreamServe) { s.To = "22" }, "--to"},
		"empty unix":   {func(s *StreamServe) { s.To = "unix:" }, "--to"},
		"no proxy":     {func(s *StreamServe) { s.AllowTo = []string{"10.0.0.0/8"} }, "--allow-to"},
		"bad allow-to": {func(s *StreamServe) { s.Socks, s.AllowTo = true, []string{"10.0.0.0/33"} }, "allow"},
		"listen":       {func(s *StreamServe) { s.Listen = "x" }, "--listen"},
		"sessions":     {func(s *StreamServe) { s.MaxSessions = 0 }, "--max-sessions"},
	} {
		s := good
		c.change(&s)
		if err := s.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestAdmission(t *testing.T) {
	mine, other := someKey(t), someKey(t)
	for _, c := range []struct {
		allow       []string
		mine, other bool
	}{{nil, false, false}, {[]string{mine}, true, false}, {[]string{mine, other}, true, true}, {[]string{AnyKey}, true, true}} {
		accept, err := Admission{Allow: c.allow}.Accept()
		if err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]bool{mine: c.mine, other: c.other} {
			key, _ := identity.ParseKey(text)
			if got := accept(key) == nil; got != want {
				t.Errorf("%v: %s is let in: %v", c.allow, text, got)
			}
		}
	}
}

// streamFile writes a heddle.toml, and reads it.
func streamFile(t *testing.T, text string) (c Config, dir string, problems Problems) {
	t.Helper()
	dir = t.TempDir()
	file := filepath.Join(dir, "heddle.toml")
	for name, text := range map[string]string{file: text, filepath.Join(dir, "o.secret"): "token"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c, problems = Check(file)
	return c, dir, problems
}

func TestStreamTables(t *testing.T) {
	t.Setenv("HEDDLE_HOME", t.TempDir())
	key := someKey(t)
	c, dir, problems := streamFile(t, `via = ["home=src:127.0.0.2", "lte=src:127.0.0.3"]
path = ["office=socks5:192.0.2.1:1080"]
secret = ["office=o.secret"]
identity = "me.pem"
schedule = "uniform"
min-paths = 1
degrade = true

[[dial]]
name = "files"
listen = "127.0.0.1:2222"
to = "192.0.2.1:4470"
key = "`+key+`"
via = ["home", "t=node:tokyo@office"]
shares = "xor:2"
warm = 3
board = "board.json"

[[dial]]
name = "web"
socks = "127.0.0.1:1080"
to = "192.0.2.1:4470"
key = "`+key+`"
paths = 3
identity = "/other.pem"

[[dial]]
name = "both"
listen = "127.0.0.1:2223"
to = "192.0.2.1:4470"
key = "`+key+`"

[[serve]]
to = "127.0.0.1:22"
allow = ["any"]
keylog = "keys"
`)
	if wrong := problems.Errors(); len(wrong) != 1 || wrong[0].Key != "dial[0].board" || wrong[0].Line != 17 {
		t.Fatalf("but for the board's absent file nothing is wrong: %v", wrong)
	}
	files, web, both, ssh := c.Dials[0], c.Dials[1], c.Dials[2], c.Serves[0]
	want := DefaultStreamDial()
	want.Name, want.Listen, want.To, want.Key, want.Shares, want.Warm = "files", "127.0.0.1:2222", "192.0.2.1:4470", key, "xor:2", 3
	want.Via = []string{"home=src:127.0.0.2", "t=node:tokyo@office"}
	want.Path = []string{"lte=src:127.0.0.3", "office=socks5:192.0.2.1:1080"}
	want.Secret, want.Identity, want.Board = []string{"office=" + filepath.Join(dir, "o.secret")}, filepath.Join(dir, "me.pem"), filepath.Join(dir, "board.json")
	if !reflect.DeepEqual(files, want) { // how datagrams are split says nothing of streams
		t.Errorf("got  %+v\nwant %+v", files, want)
	}
	if web.Via != nil || !reflect.DeepEqual(web.Path, c.Via) || web.Identity != "/other.pem" {
		t.Errorf("nodes that are to be chosen ride %v, with paths %v: %+v", web.Path, web.Via, web)
	}
	if !reflect.DeepEqual(both.Via, c.Via) || both.SessionName() != "dial-both" {
		t.Errorf("%+v", both)
	}
	if ssh.Name != "files" || ssh.Listen != DefaultStreamListen || ssh.Identity != filepath.Join(dir, "me.pem") || ssh.Keylog != filepath.Join(dir, "keys") {
		t.Errorf("%+v", ssh)
	}
	if want := "office=" + filepath.Join(dir, "o.secret"); c.Secret[0] != want {
		t.Errorf("what all have is %v, want %s", c.Secret, want)
	}
}

func TestStreamTablesThatAreWrong(t *testing.T) {
	t.Setenv("HEDDLE_HOME", t.TempDir())
	good := "via = [\"home=src:127.0.0.2\", \"lte=src:127.0.0.3\"]\n[[dial]]\nname = \"files\"\nlisten = \"127.0.0.1:2222\"\nto = \"192.0.2.1:4470\"\nkey = \"" + someKey(t) + "\"\n"
	if _, _, problems := streamFile(t, good); len(problems) != 0 {
		t.Fatal(problems)
	}
	for text, want := range map[string]struct {
		line int
		says string
	}{
		good + "lisen = \"x:1\"":                                {7, "did you mean listen?"},
		good + "kill-switch = true":                             {7, "it is a key of a [[up]] table"},
		good + "allow = [\"any\"]":                              {7, "it is a key of a [[serve]] table"},
		good + "shares = \"0of3\"":                              {7, "a single share"},
		good + "warm = \"many\"":                                {7, "warm is a whole number"},
		good + "socks-users = \"\"":                             {7, "leave it out to let everybody in"},
		good + "socks-users = 1":                                {7, "socks-users is a text"},
		good + "via = [\"home\",\n\"work\"]":                    {8, "no path before the first table is called \"work\""},
		good + "via = [\"a=node:x@nowhere\"]":                   {7, "no path is called \"nowhere\""},
		good + "schedule = \"uniform\"":                         {7, "no schedule is called"},
		good + "[[dial]]\nname = \"files\"":                     {8, "two tables are called dial-files"},
		good + "[[serve]]\nto = \"127.0.0.1:22\"":               {7, "nobody may come in"},
		good + "[[serve]]\nallow = [\"any\"]":                   {7, "nothing says what is served"},
		good + "[[server]]\n":                                   {7, "tables: [[up]], [[split]], [[serve]], [[dial]] and [[rule]]"},
		strings.ReplaceAll(good, "key = ", "#"):                 {2, "key is missing"},
		strings.ReplaceAll(good, "via = ", "#"):                 {2, "no path is given"},
		strings.ReplaceAll(good, "127.0.0.1:2222", "0.0.0.0:1"): {4, "can be reached from other machines"},
		strings.ReplaceAll(good, "home=src", "home=scr"):        {1, "no kind of path is called"},
		"dial = 1":                            {1, "dial is a table"},
		"paths = 3\n":                         {1, "it is a key of a [[dial]] table"},
		"[[up]]\nfile = \"x.conf\"\nwarm = 1": {3, "it is a key of a [[dial]] table"},
	} {
		_, _, problems := streamFile(t, text)
		found := 0
		for _, p := range problems {
			if strings.Contains(p.String()+p.Hint, want.says) && p.Line == want.line {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s\nsays %d times %q at line %d: %v", text, found, want.says, want.line, problems)
		}
	}
}

// The board that `heddle board use` keeps says who the peer is, where nothing else does.
func TestKeptBoard(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HEDDLE_HOME", home)
	file := filepath.Join(home, "board.json")
	reference, err := board.ParseReference(someKey(t) + "@192.0.2.1:7300")
	if err != nil {
		t.Fatal(err)
	}
	text := "via = [\"home=src:127.0.0.2\"]\n[[dial]]\nname = \"files\"\nlisten = \"127.0.0.1:2222\"\n"
	if _, _, problems := streamFile(t, text); len(problems.Errors()) != 2 {
		t.Errorf("without a board: %v", problems)
	}
	if err := reference.Save(file); err != nil {
		t.Fatal(err)
	}
	if c, _, problems := streamFile(t, text); len(problems) != 0 || c.Dials[0].Board != file {
		t.Errorf("with one: %v, %+v", problems, c.Dials)
	}
	d := goodDial(t)
	if d.KeptBoard(); d.Board != "" {
		t.Errorf("nobody needs to be asked, and %s would be", d.Board)
	}
}

// One device serves a stream and receives files without a word on ports.
func TestDefaultPortsDiffer(t *testing.T) {
	if a, b := DefaultStreamServe().Listen, DefaultRecv().Listen; a == b {
		t.Errorf("both listen on %s", a)
	}
}
