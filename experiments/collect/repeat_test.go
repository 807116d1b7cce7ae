package collect

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"heddle/observe"
)

// verdicts are visits without a world. Each takes the first verdict that is left for its site: "" for a visit that counts,
// which visits without a verdict do too.
type verdicts map[string][]string

func (v verdicts) visit(_ context.Context, t task) (Visit, error) {
	out := Visit{Site: t.site.Name, Round: t.round, Defended: t.defended}
	if left := v[t.site.Name]; len(left) > 0 {
		out.Error, v[t.site.Name] = left[0], left[1:]
	}
	if out.Error == "" {
		out.Rows = []observe.TraceRow{{Label: t.site.Name, Load: t.load, Time: []int32{0}, Size: []int32{60}}}
	}
	return out, nil
}

func (v verdicts) end() error { return nil }

func TestRejectedVisitIsMadeAgain(t *testing.T) {
	late := "the emulated links were late"
	var talk bytes.Buffer
	given := verdicts{"once": {late, ""}, "always": {late, late, late, late, late, ""}}
	o := Options{Visits: 1, Jobs: 1, Out: filepath.Join(t.TempDir(), "split.parquet"), Talk: &talk,
		Sites: Sites{Site: []Site{{Name: "always"}, {Name: "never"}, {Name: "once"}}},
		begin: func(context.Context) (visits, error) { return given, nil }}
	j, err := openJournal(o.Out+".journal", setting{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	var s Summary
	if err := o.make(t.Context(), j, o.tasks(), &s); err != nil {
		t.Fatal(err)
	}
	if err := o.write(j, o.tasks(), &s); err != nil {
		t.Fatal(err)
	}
	if s.Made != 3 || s.Kept != 2 || s.Failed != 1 || s.Repeats != 1+4 || len(given["always"]) != 1 {
		t.Errorf("%+v, and %d verdicts are left", s, len(given["always"]))
	}
	if v := j.done[key{"once", 0, true}]; v.Error != "" || v.Repeats != 1 || len(v.Rows) != 1 {
		t.Errorf("rejected once: %+v", v)
	}
	if v := j.done[key{"always", 0, true}]; v.Error != "given up after 5 attempts: "+late {
		t.Errorf("rejected always: %+v", v)
	}
	for text, n := range map[string]int{"rejected: " + late: 5, "attempt 2 of 5 follows": 2, "failed: given up after 5 attempts: " + late: 1} {
		if strings.Count(talk.String(), text) != n {
			t.Errorf("%q is not there %d times:\n%s", text, n, talk.String())
		}
	}
	var a about
	if raw := metadata(t, o.Out); json.Unmarshal([]byte(raw), &a) != nil || a.Repeats != 5 || a.Failed != 1 {
		t.Errorf("the data set says %s", raw)
	}
}

// metadata is what a data set says of how it was made.
func metadata(t *testing.T, name string) string {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	set, err := parquet.OpenFile(file, info.Size())
	if err != nil {
		t.Fatal(err)
	}
	text, _ := set.Lookup("heddle")
	return text
}
