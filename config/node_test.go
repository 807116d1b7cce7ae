package config

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"heddle/identity"
)

// The example holds, as it is and with each key that is commented out, and what it shows as a default is one.
func TestNodeExample(t *testing.T) {
	text, err := os.ReadFile("../dist/node.toml")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`(?m)^#([a-z])`).ReplaceAllString(string(text), "$1")
	for _, text := range []string{string(text), all} {
		n, err := LoadNode(write(t, text))
		if err != nil {
			t.Fatal(err)
		}
		n.Name, n.Identity, n.Grantor, n.Deny, n.Revoked, n.Usage, n.Address, n.Board, n.ASN = "", "", nil, nil, "", "", nil, "", 0
		if want := DefaultNode(); !reflect.DeepEqual(n, want) {
			t.Errorf("%+v, defaults %+v", n, want)
		}
	}
	for _, field := range reflect.VisibleFields(reflect.TypeFor[Node]()) {
		if key := field.Tag.Get("toml"); !strings.Contains(all, "\n"+key+" = ") {
			t.Errorf("the example does not show %s", key)
		}
	}
}

// Every mistake of a file is named, at its place.
func TestNodeProblems(t *testing.T) {
	_, err := LoadNode(write(t, `name = "../x"
listn = ":1"
listen = "nowhere"
grantor = ["x"]
mode = ["root"]
deny = ["somewhere"]
max-flows = "many"
idle = "0s"
address = ["tokyo"]
asn = -1
[node]
`))
	problems, ok := err.(Problems)
	if !ok {
		t.Fatalf("%v", err)
	}
	for i, want := range []string{"name", "no key is called", "not an address", "is no key", "no mode", "is no destination", "a whole number", "above 0", "HOST:PORT", "32 bits", "no tables"} {
		if i >= len(problems) || problems[i].Line != i+1 || !strings.Contains(problems[i].What, want) {
			t.Fatalf("line %d: want %q, got %v", i+1, want, problems)
		}
	}
	if _, err := LoadNode(write(t, `board = "ed25519:x@192.0.2.1:7300"`)); err == nil || !strings.Contains(err.Error(), "address") {
		t.Errorf("a board that is not told where the node is: %v", err)
	}
}

// Files are beside the file that names them, or beside the identity.
func TestNodeFiles(t *testing.T) {
	file := write(t, `identity = "id/identity.pem"
usage = "used.json"
`)
	n, err := LoadNode(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(file)
	if n.Identity != filepath.Join(dir, "id/identity.pem") || n.Usage != filepath.Join(dir, "used.json") {
		t.Errorf("%+v", n)
	}
	if _, err := n.Options(); err == nil {
		t.Error("an identity that is absent was read")
	}
	id, _, err := identity.LoadOrCreate(n.Identity)
	if err != nil {
		t.Fatal(err)
	}
	o, err := n.Options()
	if err != nil || o.Identity.Key() != id.Key() || o.Revoked != filepath.Join(dir, "id/revoked") || o.Name == "" {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestLeasePorts(t *testing.T) {
	for text, want := range map[string][2]uint16{
		"20000-20999": {20000, 20999}, "7-7": {7, 7}, "": {}, "20000": {}, "0-5": {}, "9-8": {}, "1-70000": {}, "a-b": {},
	} {
		n := DefaultNode()
		n.NATPorts = text
		first, last, err := n.NATPortRange()
		if want != [2]uint16{first, last} || (err == nil) != (want[0] != 0) || (n.Check() == nil) != (want[0] != 0) {
			t.Errorf("%q: %d to %d, %v", text, first, last, err)
		}
	}
}
