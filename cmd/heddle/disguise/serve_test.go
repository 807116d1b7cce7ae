package disguise

import (
	"fmt"
	"testing"
)

// A bridge listens at a port of a cover's own once for each host.
func TestPortsApart(t *testing.T) {
	for _, c := range []struct {
		doors []string
		ports []uint16
		want  string
	}{
		{[]string{":443"}, []uint16{80, 8080}, "[:80 :8080]"},
		{[]string{"192.0.2.9:443", "192.0.2.9:8443", "[2001:db8::9]:443"}, []uint16{80}, "[192.0.2.9:80 [2001:db8::9]:80]"},
		{[]string{"unix:/run/bridge"}, nil, "[]"},
	} {
		if all, err := apart(c.doors, c.ports); err != nil || fmt.Sprint(all) != c.want {
			t.Errorf("%v, %v: %v, %v, want %s", c.doors, c.ports, all, err, c.want)
		}
	}
}
