package observe

import (
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
)

// TraceRow is one packet of a trace: what fingerprinting research works on.
type TraceRow struct {
	Session string  `parquet:"session,dict"` // the session's label
	Path    string  `parquet:"path,dict"`    // the observer's name
	Time    float64 `parquet:"t"`            // seconds since the session's first packet
	Size    int32   `parquet:"size"`         // bytes of the IP packet; plus is client to server, minus server to client
}

// TraceSummary says what a trace holds.
type TraceSummary struct {
	Out      string         `json:"out"`
	Rows     int            `json:"rows"`
	Sessions int            `json:"sessions"`
	Paths    map[string]int `json:"paths"` // packets of each observer
	Seconds  float64        `json:"seconds"`
}

const traceBatch = 4096

// WriteTrace writes the sessions as one Parquet table of [TraceRow]: session after session, each in the order of time.
func WriteTrace(w io.Writer, sessions ...*Session) (TraceSummary, error) {
	summary := TraceSummary{Sessions: len(sessions), Paths: map[string]int{}}
	out := parquet.NewGenericWriter[TraceRow](w, parquet.Compression(&parquet.Zstd))
	for _, s := range sessions {
		start := s.Start()
		for batch := range slices.Chunk(s.merged(), traceBatch) {
			rows := make([]TraceRow, len(batch))
			for i, e := range batch {
				rows[i] = TraceRow{Session: s.Label, Path: s.Observers[e.observer].Name,
					Time: e.Time.Sub(start).Seconds(), Size: int32(e.Size)}
				if !e.Out {
					rows[i].Size = -rows[i].Size
				}
				summary.Paths[rows[i].Path]++
			}
			if _, err := out.Write(rows); err != nil {
				return summary, fmt.Errorf("write trace: %w", err)
			}
			summary.Rows += len(rows)
		}
		summary.Seconds += s.Duration().Seconds()
	}
	if err := out.Close(); err != nil {
		return summary, fmt.Errorf("write trace: %w", err)
	}
	return summary, nil
}
