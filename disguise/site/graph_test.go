package site

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"heddle/lab/peer"
)

// graphed returns the graph of a site.
func graphed(t *testing.T, s *Site) string {
	t.Helper()
	var out bytes.Buffer
	if err := s.WriteGraph(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A graph has each page once, one edge for two pages that link to each other, and none to a page to which all link.
func TestGraph(t *testing.T) {
	s := &Site{Origin: "http://a.example"}
	for _, url := range []string{"/", "/a", "/b", `/"\n`, "/picture", "/" + strings.Repeat("x", 100)} {
		s.Objects = append(s.Objects, Object{URL: url, Size: 1000})
	}
	s.Pages = []Page{{Document: 0, Links: []int{0, 1, 1}, Loads: []Load{{Object: 4}, {Object: 4}}}, {Document: 1, Links: []int{2, 0}}, {Document: 2, Links: []int{1, 0, 3}}, {Document: 3, Links: []int{0}},
		{Document: 5, Links: []int{0}}}
	graph := graphed(t, s)
	for want, times := range map[string]int{`0 [label="/\n2 loads, 3.0 kB", peripheries=2]`: 1, `3 [label="/\"\\n\n0 loads, 1.0 kB"]`: 1, "xxx…": 1, "\t0 -> 1\n": 1, "\t1 -> 2 [dir=both]\n": 1,
		"\t2 -> 3\n": 1, " -> ": 3, "all other pages link to it": 1} {
		if strings.Count(graph, want) != times {
			t.Errorf("%q is not there %d times: %s", want, times, graph)
		}
	}
	s.Pages = s.Pages[:3]
	if few := graphed(t, s); !strings.Contains(few, "1 -> 0") && !strings.Contains(few, "0 -> 1 [dir=both]") || strings.Contains(few, "peripheries") {
		t.Errorf("a graph of few pages leaves out edges: %s", few)
	}
}

// Graphviz draws what hostile URLs make.
func TestGraphIsGraphviz(t *testing.T) {
	if _, err := exec.LookPath("dot"); err != nil {
		t.Skip("typed skip:", peer.ErrMissing, err)
	}
	s := &Site{Origin: "http://a.example/\"];x[label=\""}
	for i, url := range []string{`/"`, `/\`, `/\"];evil[label="`, "/\x00\n\u202e", "/<b>", "/ö"} {
		s.Objects = append(s.Objects, Object{URL: url})
		s.Pages = append(s.Pages, Page{Document: i, Links: []int{0}})
	}
	draw := exec.CommandContext(t.Context(), "dot", "-Tsvg")
	draw.Stdin = strings.NewReader(graphed(t, s))
	out, err := draw.CombinedOutput()
	if err != nil || bytes.Count(out, []byte(`class="node"`)) != len(s.Pages) {
		t.Errorf("%v: %s", err, out)
	}
}
