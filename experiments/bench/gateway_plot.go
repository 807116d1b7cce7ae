package bench

import "strings"

// unplotted is the chart of rows that the plot leaves out.
const unplotted = "-"

// gatewaySpot lays the plot out as the paper's figures. The rows of the bridge of Open vSwitch are in charts of their own.
func gatewaySpot(name, metric string) spot {
	w := strings.Split(name, "/")
	switch last := w[len(w)-1]; w[0] {
	case "latency":
		return spot{"Figure 3(a): time of a fetch", w[1], w[2]}
	case "rate":
		return spot{"Figure 3(b): the most fetches a second", w[2] + " at a time", w[1]}
	case "offered":
		return spot{"Figure 3(b): answers against requests a second", w[1], w[2]}
	case "burst":
		return spot{"Figure 4(a): time until all of some clients have 10 KiB", w[1], w[2]}
	case "object":
		if metric == "processor" {
			return spot{"Figure 4(b): processor time of gateway or relay", w[1], w[2]}
		}
		return spot{"Figure 4(b): goodput of four clients", w[1], w[2]}
	case "rules":
		if metric == "latency" {
			return spot{"Figure 4(c): time of a fetch, by rules of the switch", w[1], sizeOf(last)}
		}
		return spot{"Figure 4(c): rules that come and go", w[1], last}
	case "pseudonyms":
		if metric == "latency" {
			return spot{"Figure 4(d): time of a fetch, by pseudonyms of the site", w[1], sizeOf(last)}
		}
		return spot{"Figure 4(d): memory, by pseudonyms of the site", w[1], last}
	case "established":
		if metric == "memory" {
			return spot{"Memory of connections that stay", w[1], last}
		}
		return spot{chart: unplotted}
	case "stall":
		return spot{"The longest fetch of 10 KiB while a packet is lost, late or twice", w[1], w[2]}
	case "ovs":
		s := gatewaySpot(strings.Join(w[1:], "/"), metric)
		s.chart += " (by Open vSwitch)"
		return s
	}
	return spot{}
}

// sizeOf is the size that the last word of a case of [fetchLatencies] says.
func sizeOf(last string) string {
	if last == hundred.name {
		return last
	}
	return usual.name
}
