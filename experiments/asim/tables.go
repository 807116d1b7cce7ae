package asim

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"heddle/experiments/bench"
	"heddle/path"
	"heddle/path/diversity"
)

// Place is a place of the paper's experiment, and the AS that represents it here.
type Place struct {
	Name string
	AS   diversity.AS
}

// The paper had its server and all nodes in the data centres of one company. In the graph that is one AS, and all pairs
// would be equal. So each node is in a network of its place; --place moves it.
var (
	// client is Portugal's academic network; mobile, for table II, is a provider's mobile network there.
	clientPlaces = []Place{{"client", 1930}, {"mobile", 12353}}
	serverPlace  = Place{"Ireland", 16509} // the company
	nodePlaces   = []Place{
		{"Frankfurt", 3320},    // Deutsche Telekom
		{"N. Virginia", 40220}, // the Mid-Atlantic research network
		{"California", 2152},   // California's academic network
		{"Oregon", 3701},       // Oregon's academic network
		{"Tokyo", 2497},        // IIJ
		{"Seoul", 4766},        // Korea Telecom
		{"Singapore", 3758},    // SingNet
		{"Sydney", 1221},       // Telstra
	}
)

// Places are all places that the tables need, the client's first.
func Places() []Place {
	return slices.Concat(clientPlaces, []Place{serverPlace}, nodePlaces)
}

// ParsePlaces moves places, each given as NAME=AS.
func ParsePlaces(texts []string) ([]Place, error) {
	places := Places()
	for _, text := range texts {
		name, number, _ := strings.Cut(text, "=")
		i := slices.IndexFunc(places, func(p Place) bool { return strings.EqualFold(p.Name, name) })
		as, err := diversity.ParseAS(number)
		if i < 0 || err != nil {
			var known []string
			for _, p := range places {
				known = append(known, p.Name)
			}
			return nil, &path.Error{What: fmt.Sprintf("--place %q", text), Why: "it is not NAME=AS", Hint: "names: " + strings.Join(known, ", ")}
		}
		places[i].AS = as
	}
	return places, nil
}

// published is a row of a table of the paper (MACHETE, section IV-A), which counts the ASes that its traceroute named.
// except is table I's count without the seven that all paths share; single and dual are from table II.
type published struct {
	a, b         string
	single, dual float64
	except       float64
}

var tableI = []published{
	{a: "Singapore", b: "Tokyo", single: 13, except: 6}, {a: "Frankfurt", b: "Seoul", single: 12, except: 5},
	{a: "Frankfurt", b: "Tokyo", single: 12, except: 5}, {a: "California", b: "Seoul", single: 12, except: 5},
	{a: "California", b: "Tokyo", single: 12, except: 5}, {a: "Oregon", b: "Tokyo", single: 12, except: 5},
	{a: "Seoul", b: "Tokyo", single: 12, except: 5},
}

var tableII = []published{
	{a: "Oregon", b: "Sydney", single: 10, dual: 3}, {a: "Oregon", b: "Tokyo", single: 12, dual: 3},
	{a: "Oregon", b: "Seoul", single: 11, dual: 2}, {a: "Sydney", b: "Tokyo", single: 10, dual: 2},
	{a: "Frankfurt", b: "California", single: 9, dual: 1}, {a: "Frankfurt", b: "Oregon", single: 10, dual: 1},
	{a: "Frankfurt", b: "Seoul", single: 12, dual: 1},
}

// tables computes the paths of the paper's experiment.
type tables struct {
	first, second map[string]diversity.Path // by node: from the client, and from the mobile network
	everywhere    int                       // ASes on all paths of first
}

// Tables reports on the graph the least diverse pairs of the paper's tables I and II, and those that are least diverse here.
func Tables(g *Graph, places []Place) (Report, error) {
	t, err := newTables(g, places)
	report := Report{Graph: About{ASes: g.Len(), Links: g.Links()}}
	if err != nil {
		return report, err
	}
	table := bench.NewTable("asim-tables")
	figure := func(name, metric string, value int, paper float64) {
		f := bench.Figure{Case: name, Group: name[:strings.IndexByte(name, '/')], Metric: metric, Unit: "ASes"}
		if paper > 0 {
			f.Paper = &paper
		}
		table.Add(f, 0, float64(value))
	}
	for _, row := range withLeast(tableI, t.pairs(t.first, true)) {
		common := t.common(t.first[row.a], t.first[row.b])
		figure("table1/"+row.a+", "+row.b, "single-homed", common, row.single)
		figure("table1/"+row.a+", "+row.b, "but for those on all paths", common-t.everywhere, row.except)
	}
	for _, row := range withLeast(tableII, t.pairs(t.second, false)) {
		figure("table2/"+row.a+", "+row.b, "single-homed", t.common(t.first[row.a], t.first[row.b]), row.single)
		figure("table2/"+row.a+", "+row.b, "dual-homed", t.common(t.first[row.a], t.second[row.b]), row.dual)
	}
	report.Report = table.Report()
	return report, nil
}

func newTables(g *Graph, places []Place) (tables, error) {
	t := tables{map[string]diversity.Path{}, map[string]diversity.Path{}, 0}
	index := map[string]int32{}
	for _, p := range places {
		i, ok := g.Index(p.AS)
		if !ok {
			return t, &path.Error{What: p.Name, Why: p.AS.String() + " is not in the graph", Hint: "--place \"" + p.Name + "=AS\" puts it elsewhere"}
		}
		index[p.Name] = i
	}
	r := newRouter(g)
	server := r.routes(index[serverPlace.Name])
	var everywhere []diversity.AS
	for n, node := range nodePlaces {
		routes := r.routes(index[node.Name])
		for i, ways := range []map[string]diversity.Path{t.first, t.second} {
			from := clientPlaces[i].Name
			found := paths(g, []uplink{{from, nil, index[from]}}, []Routes{routes}, server)
			if len(found) == 0 {
				return t, &path.Error{What: node.Name, Why: "the graph has no route between it and " + from + " or " + serverPlace.Name}
			}
			found[0].Node = node.Name
			ways[node.Name] = found[0]
		}
		ases := slices.Clone(t.first[node.Name].ASes)
		if n > 0 {
			ases = slices.DeleteFunc(everywhere, func(a diversity.AS) bool { return !slices.Contains(ases, a) })
		}
		everywhere = ases
	}
	slices.Sort(everywhere)
	t.everywhere = len(slices.Compact(everywhere))
	return t, nil
}

// common counts the ASes on both paths, both ends included, as the paper does.
func (t tables) common(a, b diversity.Path) int {
	b.Node += " " // the paper also pairs the two paths over one node
	return diversity.NewMatrix([]diversity.Path{a, b}, nil).Common(0, 1)
}

// pairs returns all pairs of nodes, the least diverse first. The second path begins in other's network; if that differs
// from the first's, the order in a pair matters.
func (t tables) pairs(other map[string]diversity.Path, symmetric bool) (all []published) {
	for i, a := range nodePlaces {
		for j, b := range nodePlaces {
			if i != j && (!symmetric || i < j) {
				all = append(all, published{a: a.Name, b: b.Name})
			}
		}
	}
	slices.SortStableFunc(all, func(p, q published) int {
		return cmp.Compare(t.common(t.first[q.a], other[q.b]), t.common(t.first[p.a], other[p.b]))
	})
	return all
}

// withLeast returns the paper's rows, and as many of the least diverse here that are not among them.
func withLeast(paper, here []published) []published {
	rows := slices.Clone(paper)
	for _, p := range here[:len(paper)] {
		if !slices.ContainsFunc(rows, func(q published) bool { return p.a == q.a && p.b == q.b || p.a == q.b && p.b == q.a }) {
			rows = append(rows, p)
		}
	}
	return rows
}

// WriteTables writes both tables as text.
func (r Report) WriteTables(w io.Writer, places []Place) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PAIR OF PATHS\tMETRIC\tHERE\tPAPER")
	for _, row := range r.Rows {
		paper := "-"
		if row.Paper != nil {
			paper = fmt.Sprintf("%.0f", *row.Paper)
		}
		fmt.Fprintf(table, "%s\t%s\t%.0f\t%s\n", row.Case, row.Metric, row.Median, paper)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	var at []string
	for _, p := range places {
		at = append(at, fmt.Sprintf("%s in %s", p.Name, p.AS))
	}
	_, err := fmt.Fprintf(w, `
%s.
What differs: here a number is one of different ASes on computed routes. The
paper counted hops as a traceroute named them, among nodes of one
company, whose network is among the common ones of every pair. Compare which
setting has fewer, not the numbers.
`, strings.Join(at, ", "))
	return err
}
