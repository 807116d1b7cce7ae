package errhint

import (
	"strings"
	"testing"
)

// Advice to run as root helps nobody who is root.
func TestRights(t *testing.T) {
	if got := rights(true, "CAP_BPF"); strings.Contains(got, "run as root") || !strings.Contains(got, "CAP_BPF") {
		t.Errorf("for root: %q", got)
	}
	if got := rights(false, "CAP_BPF"); got != "run as root or with CAP_BPF" {
		t.Errorf("for others: %q", got)
	}
}
