package site

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"heddle/internal/text"
)

// leastEverywhere is from how many pages on links to a page from nearly all others are left out of a graph.
const leastEverywhere = 4

// WriteGraph writes the pages and their links in Graphviz's language (DOT). Two pages that link to each other have one edge. A page to which nearly all
// others link, as those of a menu, has a double border in place of these edges, which would hide the others.
func (s *Site) WriteGraph(w io.Writer) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "digraph %s {\n\trankdir=LR\n\tnode [shape=box, style=rounded, fontname=\"sans-serif\", fontsize=11]\n\tedge [color=\"#888888\", arrowsize=0.6]\n",
		quoted(s.Origin))
	g := s.links()
	noted := false
	for _, p := range g.pages {
		size := s.Objects[p.Document].Size
		for _, l := range p.Loads {
			size += s.Objects[l.Object].Size
		}
		more := ""
		if g.everywhere(p.Document) {
			more, noted = ", peripheries=2", true
		}
		label := quoted(fmt.Sprintf("%s\n%s, %s", s.Objects[p.Document].URL, text.Count(len(p.Loads), "load"), text.Size(size)))
		fmt.Fprintf(out, "\t%d [label=%s%s]\n", p.Document, label, more)
	}
	if noted {
		fmt.Fprintf(out, "\tlabel=\"double border: nearly all other pages link to it\"\n\tfontname=\"sans-serif\"\n\tfontsize=10\n")
	}
	for _, edge := range slices.SortedFunc(maps.Keys(g.edges), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
		from, to := edge[0], edge[1]
		mutual := g.edges[[2]int{to, from}] && !g.everywhere(from)
		switch {
		case g.everywhere(to) || mutual && to < from:
		case mutual:
			fmt.Fprintf(out, "\t%d -> %d [dir=both]\n", from, to)
		default:
			fmt.Fprintf(out, "\t%d -> %d\n", from, to)
		}
	}
	fmt.Fprintln(out, "}")
	return out.Flush()
}

// linked are the pages of a site, each once, and the links between them.
type linked struct {
	pages []Page
	edges map[[2]int]bool // from one document to another
	into  map[int]int     // how many pages link to a document
}

func (s *Site) links() linked {
	g := linked{edges: map[[2]int]bool{}, into: map[int]int{}}
	known := map[int]bool{}
	for _, p := range s.Pages {
		if !known[p.Document] {
			known[p.Document] = true
			g.pages = append(g.pages, p)
		}
		for _, to := range p.Links {
			if edge := [2]int{p.Document, to}; to != p.Document && !g.edges[edge] {
				g.edges[edge] = true
				g.into[to]++
			}
		}
	}
	return g
}

// everywhere reports whether nine of ten other pages link to one.
func (g linked) everywhere(document int) bool {
	return len(g.pages) >= leastEverywhere && 10*g.into[document] >= 9*(len(g.pages)-1)
}

// mostLabel is how much of a URL is shown, in characters.
const mostLabel = 60

// quoted writes a text as a string of DOT.
func quoted(label string) string {
	first, rest, more := strings.Cut(label, "\n")
	first = text.Printable(first)
	if all := []rune(first); len(all) > mostLabel {
		first = string(all[:mostLabel-1]) + "…"
	}
	out := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(first)
	if more {
		out += `\n` + rest
	}
	return `"` + out + `"`
}
