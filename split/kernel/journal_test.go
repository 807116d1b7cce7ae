package kernel

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"heddle/internal/bpf"
	"heddle/internal/journal"
	"heddle/internal/sysctl"
	"heddle/split/backend"
)

// samples has one change of each kind, with all fields set.
var samples = []journal.Change{
	&backend.Guard{Table: "heddle_kernel_x", Server: netip.MustParseAddrPort("192.0.2.1:443"), Others: []netip.AddrPort{netip.MustParseAddrPort("[2001:db8::1]:443")}},
	&sysctl.Change{File: "/proc/sys/net/ipv4/conf/x/rp_filter", New: "2", Old: "1"},
	&bpf.Clsact{Device: "x", Index: 3},
	&bpf.Filter{Device: "x", Index: 3, Hook: bpf.In, Name: "heddle-x"},
	&segmenter{First: "heddlea", Second: "heddleb"},
	&backend.Table{V6: true, Number: 52820, Blackhole: true},
	&backend.Rule{V6: true, Priority: 5, Mark: 7, To: netip.MustParseAddrPort("[2001:db8::1]:443"), Table: 52820, Goto: 9},
}

// What a crash leaves is undone from what the file says.
func TestEachKindSurvivesTheFile(t *testing.T) {
	data, err := journal.Encode(samples, kinds)
	if err != nil {
		t.Fatal(err)
	}
	got, err := journal.Decode(data, kinds)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, samples) {
		t.Errorf("%s is read back as %v", data, got)
	}
	if len(samples) != len(kinds) {
		t.Errorf("%d kinds, %d samples", len(kinds), len(samples))
	}
	for _, c := range samples {
		if c.String() == "" || strings.Contains(c.String(), "%!") {
			t.Errorf("%T says %q", c, c)
		}
	}
}
