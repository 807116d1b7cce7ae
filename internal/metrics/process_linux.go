package metrics

import (
	"io"

	vm "github.com/VictoriaMetrics/metrics"
	"github.com/prometheus/procfs"
)

// writeSystem writes what the kernel knows of the process and its network, and VictoriaMetrics leaves out.
func writeSystem(w io.Writer) {
	self, err := procfs.Self()
	if err != nil {
		return // without /proc
	}
	if limits, err := self.Limits(); err == nil {
		vm.WriteGaugeUint64(w, "process_virtual_memory_max_bytes", limits.AddressSpace)
	}
	if network, err := self.Netstat(); err == nil && network.InOctets != nil && network.OutOctets != nil {
		vm.WriteCounterFloat64(w, "process_network_receive_bytes_total", *network.InOctets)
		vm.WriteCounterFloat64(w, "process_network_transmit_bytes_total", *network.OutOctets)
	}
}
