package path

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"heddle/internal/answers"
	"heddle/internal/nstest"
)

// An entry that is still renewed counts as left if nothing runs that renews it.
func TestLeftovers(t *testing.T) {
	nstest.New(t).Enter(t)
	const server = "192.0.2.1"
	if err := answers.Guard(netip.MustParseAddr(server)); err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	if all := Leftovers(now, false); len(all) != 0 {
		t.Errorf("beside a session are left %v", all)
	}
	all := Leftovers(now, true)
	if len(all) != 1 || !strings.HasSuffix(all[0].Blocks, " to "+server) || !all[0].Ends.After(now) || all[0].Ends.After(now.Add(answers.Lasting)) {
		t.Errorf("left are %v", all)
	}
}
