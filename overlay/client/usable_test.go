package client

import (
	"fmt"
	"testing"
	"time"

	"heddle/identity"
)

// Nodes that take one another's names are told apart by their keys: a pass means the node that it was made for.
func TestNodesOfOneName(t *testing.T) {
	id := fresh(t)
	signed, err := Issue(id, Grant{Holder: id.Key(), From: time.Now().Add(-time.Minute), Until: time.Now().Add(time.Hour), Modes: []string{ModeForward}})
	if err != nil {
		t.Fatal(err)
	}
	var keys []identity.Key
	var listed []Listed
	for i, name := range []string{"tokyo", "tokyo", "tokyo", "../x"} {
		node, err := identity.New()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, node.Key())
		if i > 0 { // the first is known by its pass alone
			listed = append(listed, Listed{Name: name, Key: node.Key(), Addresses: []string{fmt.Sprintf("192.0.2.%d:7443", i)}, Modes: []string{ModeForward}})
		}
	}
	kept := []Pass{{Name: "tokyo", Key: keys[0], Addresses: []string{"192.0.2.9:7443"}, Grant: signed}}
	all := Usable(kept, listed, id.Key(), time.Now())
	if len(all) != 3 {
		t.Fatalf("%+v", all)
	}
	names := map[string]bool{}
	for i, p := range all {
		names[p.Name] = true
		if p.Key != keys[i] || (p.Name == "tokyo") != (i == 0) || p.Check() != nil {
			t.Errorf("%d: %s is %v", i, p.Name, p.Key)
		}
	}
	if at := all[0].Addresses; len(at) != 1 || at[0] != "192.0.2.9:7443" || len(names) != 3 {
		t.Errorf("the pass leads to %v; names %v", at, names)
	}
}
