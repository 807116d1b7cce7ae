package tenants

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gopacket/gopacket/layers"

	"heddle/experiments/readers"
)

// Says is what p0f says of a tenant's machine.
type Says struct {
	Way    string         `json:"way"`
	Tenant string         `json:"tenant"`
	Says   map[string]int `json:"says"` // how often
}

// p0f has p0f read the capture of a way.
func p0f(ctx context.Context, file, way string, known []pseudonym) (says []Says, err error) {
	flows, err := read(file, layers.TCPPort(port))
	if err != nil {
		return nil, err
	}
	tenant, by := map[string]string{}, map[string]*Says{}
	for _, one := range known {
		tenant[one.Name], by[one.tenant] = one.tenant, &Says{way, one.tenant, map[string]int{}}
	}
	of := map[ends]string{}
	for _, f := range flows {
		of[f.ends] = tenant[f.name]
	}
	work := file + ".talking"
	defer os.Remove(work)
	if err := readers.Carrying(ctx, file, work); err != nil {
		return nil, err
	}
	lines, err := readers.P0FLines(ctx, work)
	if err != nil {
		return nil, err
	}
	for _, line := range lines {
		if s := by[of[ends{parsed(line["cli"]), parsed(line["srv"])}]]; s != nil && line["subj"] == "srv" {
			s.Says[about(line)]++
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		says = append(says, *by[name])
	}
	return says, nil
}

// parsed reads ADDRESS/PORT.
func parsed(text string) netip.AddrPort {
	host, port, _ := strings.Cut(text, "/")
	address, err := netip.ParseAddr(host)
	number, other := strconv.ParseUint(port, 10, 16)
	if err != nil || other != nil {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(address, uint16(number))
}

// about leaves out what names the connection, and what p0f measures: how long a machine runs, and its clock.
func about(line map[string]string) string {
	said := []string{line["mod"]}
	for _, name := range slices.Sorted(maps.Keys(line)) {
		if value := line[name]; value != "" && !slices.Contains([]string{"mod", "cli", "srv", "subj", "uptime", "raw_freq"}, name) {
			said = append(said, name+" "+value)
		}
	}
	return strings.Join(said, ", ")
}

// Telling is a thing that is different at tenants for sure: no value of one is a value of another one.
type Telling struct {
	Way    string              `json:"way"`
	Name   string              `json:"name"`
	Values map[string][]string `json:"values"` // the tenants, by value
}

// mostValues are what a thing may have at one tenant so that it is no count of what comes by chance.
const mostValues = 4

// Tell finds what tells the tenants of each way apart for sure.
func Tell(all []Connection) (found []Telling) {
	values := map[[2]string]map[string]map[string]bool{} // by way and name, and by tenant
	for _, c := range all {
		for name, value := range c.Seen {
			if _, measured := value.(float64); measured {
				continue
			}
			key := [2]string{c.Way, name}
			if values[key] == nil {
				values[key] = map[string]map[string]bool{}
			}
			if values[key][c.Tenant] == nil {
				values[key][c.Tenant] = map[string]bool{}
			}
			values[key][c.Tenant][fmt.Sprint(value)] = true
		}
	}
	for key, tenants := range values {
		t := Telling{key[0], key[1], map[string][]string{}}
		few := true
		for tenant, some := range tenants {
			few = few && len(some) <= mostValues
			text := strings.Join(slices.Sorted(maps.Keys(some)), " or ")
			t.Values[text] = append(t.Values[text], tenant)
		}
		if few && apart(tenants) {
			for _, names := range t.Values {
				slices.Sort(names)
			}
			found = append(found, t)
		}
	}
	slices.SortFunc(found, func(a, b Telling) int {
		return cmp.Or(cmp.Compare(slices.Index(Ways(), a.Way), slices.Index(Ways(), b.Way)),
			cmp.Compare(slices.IndexFunc(Kinds(), a.is), slices.IndexFunc(Kinds(), b.is)), cmp.Compare(a.Name, b.Name))
	})
	return found
}

func (t Telling) is(kind string) bool { return strings.HasPrefix(t.Name, kind+": ") }

// apart reports whether two tenants have no value in common.
func apart(tenants map[string]map[string]bool) bool {
	names := slices.Sorted(maps.Keys(tenants))
	for i, a := range names {
		for _, b := range names[i+1:] {
			common := false
			for value := range tenants[a] {
				common = common || tenants[b][value]
			}
			if !common {
				return true
			}
		}
	}
	return false
}
