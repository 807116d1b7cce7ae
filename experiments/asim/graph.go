// Package asim simulates which networks see the paths through an overlay, on a graph of the Internet's autonomous
// systems. Routes follow the preferences of providers, customers and peers (Gao and Rexford, "Stable Internet Routing
// Without Global Coordination", 2001). Nodes, clients and servers are drawn at random.
//
// It estimates what a choice of paths gains on average. Do not use it to predict a route: real networks have their own
// policies, and the graph lacks most links between peers.
package asim

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"heddle/path"
	"heddle/path/diversity"
)

// Graph is a graph of ASes. ASes are indexed in the order of their numbers.
type Graph struct {
	numbers []diversity.AS
	// Neighbours by index, in ascending order.
	providers, customers, peers [][]int32
	links                       int
}

// Len is the number of ASes.
func (g *Graph) Len() int { return len(g.numbers) }

// Links is the number of pairs of connected ASes.
func (g *Graph) Links() int { return g.links }

// Number returns the AS with an index.
func (g *Graph) Number(index int32) diversity.AS { return g.numbers[index] }

// Index returns the index of an AS.
func (g *Graph) Index(as diversity.AS) (int32, bool) {
	i, ok := slices.BinarySearch(g.numbers, as)
	return int32(i), ok
}

// relation is one line of a file: a provider and its customer, or two peers.
type relation struct {
	a, b diversity.AS
	peer bool
}

// maxGraph bounds a file in bytes after decompression, and maxRelations in lines: today's Internet needs a twentieth.
const maxGraph, maxRelations = 256 << 20, 10_000_000

// Load reads a graph from a file, which may be compressed by gzip.
func Load(file string) (*Graph, error) {
	fail := func(err error) (*Graph, error) {
		return nil, &path.Error{What: "AS relationships " + file, Why: "cannot be read", Err: err,
			Hint: "it must have lines of PROVIDER|CUSTOMER|-1 and PEER|PEER|0, as CAIDA's serial-1 files (as-rel.txt.bz2, unpacked)"}
	}
	f, err := os.Open(file)
	if err != nil {
		return fail(err)
	}
	defer f.Close()
	var text io.Reader = bufio.NewReader(f)
	if head, _ := text.(*bufio.Reader).Peek(2); bytes.Equal(head, []byte{0x1f, 0x8b}) {
		if text, err = gzip.NewReader(text); err != nil {
			return fail(err)
		}
	}
	g, err := Read(text)
	if err != nil {
		return fail(err)
	}
	return g, nil
}

// Read reads lines of AS|AS|RELATION in CAIDA's serial-1 format: -1 if the first is the second's provider, 0 for peers.
// It also accepts 1 if the first is the second's customer, for files that list links both ways. It ignores further
// columns and lines that begin with '#'. A repeated link must have the same relation.
func Read(text io.Reader) (*Graph, error) {
	known := map[[2]diversity.AS]relation{}
	lines := bufio.NewScanner(io.LimitReader(text, maxGraph))
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		r, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		key := [2]diversity.AS{min(r.a, r.b), max(r.a, r.b)}
		if before, ok := known[key]; ok && before != r {
			return nil, fmt.Errorf("line %d: %s contradicts an earlier line", number, line)
		}
		if known[key] = r; len(known) > maxRelations {
			return nil, fmt.Errorf("it has more than %d links", maxRelations)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(known) == 0 {
		return nil, fmt.Errorf("it holds no link")
	}
	return build(known), nil
}

func parse(line string) (relation, error) {
	fields := strings.Split(line, "|")
	if len(fields) < 3 {
		return relation{}, fmt.Errorf("%q is not AS|AS|RELATION", line)
	}
	var ases [2]diversity.AS
	for i := range ases {
		n, err := strconv.ParseUint(fields[i], 10, 32)
		if err != nil || n == 0 {
			return relation{}, fmt.Errorf("%q is no AS", fields[i])
		}
		ases[i] = diversity.AS(n)
	}
	if ases[0] == ases[1] {
		return relation{}, fmt.Errorf("%s is joined to itself", ases[0])
	}
	switch fields[2] {
	case "-1":
		return relation{ases[0], ases[1], false}, nil
	case "1":
		return relation{ases[1], ases[0], false}, nil
	case "0":
		return relation{min(ases[0], ases[1]), max(ases[0], ases[1]), true}, nil
	}
	return relation{}, fmt.Errorf("%q is no relation: there are -1, 0 and 1", fields[2])
}

func build(known map[[2]diversity.AS]relation) *Graph {
	g := &Graph{links: len(known)}
	for pair := range known {
		g.numbers = append(g.numbers, pair[0], pair[1])
	}
	slices.Sort(g.numbers)
	g.numbers = slices.Clip(slices.Compact(g.numbers))
	g.providers, g.customers, g.peers = make([][]int32, g.Len()), make([][]int32, g.Len()), make([][]int32, g.Len())
	for _, r := range known {
		a, _ := g.Index(r.a)
		b, _ := g.Index(r.b)
		if r.peer {
			g.peers[a], g.peers[b] = append(g.peers[a], b), append(g.peers[b], a)
			continue
		}
		g.customers[a], g.providers[b] = append(g.customers[a], b), append(g.providers[b], a)
	}
	for _, lists := range [][][]int32{g.providers, g.customers, g.peers} {
		for _, list := range lists {
			slices.Sort(list)
		}
	}
	return g
}
