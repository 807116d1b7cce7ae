package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"heddle/path/identity"
	pathnode "heddle/path/node"
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
		"no path":        {func(d *StreamDial) { d.Via = nil }, "--via: no path is given"},
		"bad path":       {func(d *StreamDial) { d.Via[0] = "x" }, `--via: path "x"`},
		"same name":      {func(d *StreamDial) { d.Via[1] = "a=if:eth1" }, "two paths are called a"},
		"no peer":        {func(d *StreamDial) { d.To = "" }, "--to"},
		"no port":        {func(d *StreamDial) { d.To = "files.example" }, "--to"},
		"no key":         {func(d *StreamDial) { d.Key = "" }, "--key"},
		"schedule":       {func(d *StreamDial) { d.Schedule = "round-robin" }, "--schedule: no schedule is called"},
		"segment":        {func(d *StreamDial) { d.Segment = 1 }, "--segment"},
		"shares":         {func(d *StreamDial) { d.Shares = "3of2" }, "--shares"},
		"other shares":   {func(d *StreamDial) { d.Shares = "2of4" }, "4 shares, and there are 3 paths"},
		"min-paths":      {func(d *StreamDial) { d.MinPaths = 4 }, "--min-paths"},
		"patience":       {func(d *StreamDial) { d.Patience = 0 }, "--patience"},
		"listen nowhere": {func(d *StreamDial) { d.Listen = "" }, "--listen"},
		"bad listen":     {func(d *StreamDial) { d.Listen = "2222" }, "--listen"},
		"bad socks":      {func(d *StreamDial) { d.Socks = "x" }, "--socks"},
		"warm":           {func(d *StreamDial) { d.Warm = -1 }, "--warm"},
		"name":           {func(d *StreamDial) { d.Name = "../x" }, "--name"},
		"plane unknown":  {func(d *StreamDial) { d.Plane = "warp" }, "--plane: no plane is called"},
		"plane's shares": {func(d *StreamDial) { d.Plane, d.Shares = PlaneMPTCP, "2of3" }, "the kernel has its own schedule"},
		"weight unasked": {func(d *StreamDial) { d.Weight = []string{"a=1", "b=1", "c=1"} }, "--weight: the schedule is not weighted"},
		"weight missing": {func(d *StreamDial) { d.Schedule, d.Weight = "weighted", []string{"a=1", "b=1"} }, "path c has none"},
		"weight unknown": {func(d *StreamDial) { d.Schedule, d.Weight = "weighted", []string{"a=1", "b=1", "c=1", "d=1"} }, "not there"},
		"weight zero":    {func(d *StreamDial) { d.Schedule, d.Weight = "weighted", []string{"a=0"} }, "above 0"},
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
	if _, _, err := d.Options(); err == nil || !strings.Contains(err.Error(), "carry no TCP") {
		t.Errorf("a path without TCP: %v", err)
	}
}

// Paths by nodes prove the key of the identity that is named, for streams and for what is split.
func TestIdentityOfPaths(t *testing.T) {
	t.Setenv("HEDDLE_HOME", t.TempDir())
	dir, err := pathnode.Dir()
	if err != nil {
		t.Fatal(err)
	}
	id, err := identity.New()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (pathnode.Pass{Name: "tokyo", Key: id.Key(), Addresses: []string{"192.0.2.9:7443"}}).Save(dir); err != nil {
		t.Fatal(err)
	}
	d := goodDial(t)
	d.Identity, d.Via[0] = filepath.Join(dir, "another.pem"), "a=node:tokyo"
	o, _, err := d.Options()
	if err != nil {
		t.Fatal(err)
	}
	if why := o.Paths[0].Way.Describe().Why; !strings.Contains(why, "another.pem") {
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

func TestStreamFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "files.toml")
	put := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("listen = \"127.0.0.1:2222\"\nto = \"192.0.2.1:4470\"\nkey = \"" + someKey(t) + "\"\nvia = [\"a=src:192.0.2.7\", \"b=src:192.0.2.8\"]\nshares = \"xor:2\"\nidentity = \"me.pem\"\nwarm = 3\n")
	d, err := LoadStreamDial(file)
	if err != nil || d.Name != "files" || d.Warm != 3 || d.Identity != filepath.Join(dir, "me.pem") || d.Shares != "xor:2" {
		t.Errorf("%+v, %v", d, err)
	}
	put("lisen = \"127.0.0.1:2222\"\nshares = \"0of3\"\nwarm = \"many\"\n")
	_, err = LoadStreamDial(file)
	wrong, ok := errors.AsType[Problems](err)
	if !ok {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"did you mean listen?", "a single share", "warm is a whole number", "no path is given", "key is missing", "no HOST:PORT"} {
		found := false
		for _, p := range wrong {
			found = found || strings.Contains(p.String()+p.Hint, want)
		}
		if !found {
			t.Errorf("nothing says %q: %v", want, wrong)
		}
	}
	put("to = \"127.0.0.1:22\"\nallow = [\"any\"]\nname = \"ssh\"\n")
	if s, err := LoadStreamServe(file); err != nil || s.Name != "ssh" || s.Listen != DefaultStreamListen || s.Identity != "" {
		t.Errorf("%+v, %v", s, err)
	}
}
