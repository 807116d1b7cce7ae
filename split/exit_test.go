package split

import (
	"strings"
	"testing"
)

func TestOneExitIsTold(t *testing.T) {
	for _, c := range []struct {
		bases   []string
		exit    string
		claim   string
		warning string
	}{
		{[]string{"home", "lte"}, "masque:p", "each of 2 networks sees that you talk to one exit (masque:p)", "leave by one exit (masque:p)"},
		{[]string{"home", "home"}, "masque:p", "one observer", "share an observer (masque:p)"},
		{[]string{"", ""}, "", "each of 2 observers", ""},
	} {
		f, paths := closedFake(t, 2, nil)
		for i, p := range paths {
			f.members[i].Spec.Base, p.exit, p.share = c.bases[i], c.exit, c.exit
		}
		f.group.WarnShared()
		s := f.Status("relay")
		if !strings.HasPrefix(s.Claim, c.claim) {
			t.Errorf("%v: it claims %q", c.bases, s.Claim)
		}
		if all := strings.Join(s.Warnings, "\n"); c.warning == "" && all != "" || !strings.Contains(all, c.warning) {
			t.Errorf("%v: it warns %q", c.bases, all)
		}
	}
}
