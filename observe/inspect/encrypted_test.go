package inspect

import (
	"encoding/json"
	"os"
	"testing"
)

// The cases are in a file, because the tests of the evaluation check its copy of the rule by the same.
func TestExemption(t *testing.T) {
	var cases []struct {
		Name   string
		First  []byte
		Exempt string
	}
	text, err := os.ReadFile("testdata/exemption.json")
	if err == nil {
		err = json.Unmarshal(text, &cases)
	}
	if err != nil || len(cases) < 14 {
		t.Fatal(len(cases), err)
	}
	for _, c := range cases {
		if got := Exemption(c.First); got != c.Exempt {
			t.Errorf("%s: %q, want %q", c.Name, got, c.Exempt)
		}
	}
}
