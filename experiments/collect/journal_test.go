package collect

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"heddle/observe"
)

func TestJournalGoesOn(t *testing.T) {
	name := filepath.Join(t.TempDir(), "j")
	of := setting{Sites: "digest", Paths: 3, Schedule: []string{"--every", "100ms"}}
	j, err := openJournal(name, of)
	if err != nil {
		t.Fatal(err)
	}
	row := observe.TraceRow{Label: "a", Load: 7, Time: []int32{0, 5}, Size: []int32{60, -1400}}
	for _, v := range []Visit{{Site: "a", Round: 1, Error: "timeout"}, {Site: "a", Round: 1, Rows: []observe.TraceRow{row}}, {Site: "a", Round: 1, Defended: true}} {
		if err := j.add(v); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	torn, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(torn, `{"site":"b","round`)
	torn.Close()

	for range 2 { // what was torn is gone the second time
		if j, err = openJournal(name, of); err != nil {
			t.Fatal(err)
		}
		if v := j.done[key{"a", 1, false}]; len(j.done) != 2 || v.Error != "" || fmt.Sprint(v.Rows) != fmt.Sprint([]observe.TraceRow{row}) {
			t.Errorf("%+v", j.done)
		}
		j.Close()
	}
	of.Paths = 2
	if _, err := openJournal(name, of); err == nil || !strings.Contains(err.Error(), "another collection") {
		t.Errorf("other paths: %v", err)
	}
	if err := os.WriteFile(name, []byte("dear diary\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := openJournal(name, of); err == nil {
		t.Error("took a diary for a journal")
	}
}

func TestTasksTakeTurns(t *testing.T) {
	o := Options{Visits: 3, Plain: "plain", Seed: 1, Sites: Sites{Site: []Site{{Name: "m", Monitored: true}, {Name: "u"}, {Name: "n", Monitored: true}}}}
	count, loads := map[string]int{}, map[int64]string{}
	all := o.tasks()
	for i, v := range all {
		count[fmt.Sprint(v.site.Name, v.defended)]++
		if v.defended != (i%2 == 0) || i%2 == 1 && (all[i-1].site != v.site || all[i-1].load != v.load) {
			t.Errorf("task %d is %+v after %+v", i, v, all[max(i-1, 0)])
		}
		name := fmt.Sprint(v.site.Name, v.round)
		if was, ok := loads[v.load]; ok && was != name {
			t.Errorf("load %d is both %s and %s", v.load, was, name)
		}
		loads[v.load] = name
	}
	if count["mtrue"] != 3 || count["mfalse"] != 3 || count["utrue"] != 1 || count["nfalse"] != 3 || len(all) != 14 {
		t.Errorf("%v", count)
	}
	if o.Plain = ""; len(o.tasks()) != 7 {
		t.Errorf("%d tasks without plain visits", len(o.tasks()))
	}
}
