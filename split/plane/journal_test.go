package plane

import "testing"

func TestGuardTableNames(t *testing.T) {
	for session, want := range map[string]string{"office": "heddle_kernel_office", "split-4433": "heddle_kernel_split_2d4433"} {
		if got := GuardTable("kernel", session); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
