package observe

import (
	"encoding/json"
	"fmt"
	"io"
	"math"

	"github.com/parquet-go/parquet-go"

	"heddle/path"
)

// TraceRow is what one observer saw of one session, for fingerprinting research. docs/traces.md explains the columns.
type TraceRow struct {
	Label     string  `parquet:"label,dict"`   // of the session, such as the page that was visited
	Monitored bool    `parquet:"monitored"`    // whether an observer looks for that label
	Load      int64   `parquet:"load"`         // session number, which its observers' rows share
	Path      int16   `parquet:"path"`         // observer, from 0 in the order of names; -1 for the only one
	Time      []int32 `parquet:"time_us,list"` // of each packet, microseconds since the session's first
	Size      []int32 `parquet:"size,list"`    // bytes of the IP packet; positive from client to server
}

// TraceSummary counts the contents of a trace.
type TraceSummary struct {
	Out      string         `json:"out"`
	Rows     int            `json:"rows"`
	Packets  int            `json:"packets"`
	Sessions int            `json:"sessions"`
	Paths    map[string]int `json:"paths"` // packets of each observer
	Seconds  float64        `json:"seconds"`
}

// whole is the path of a session whose one observer sees all of it.
const whole = -1

// TraceRows returns the session's rows, one for each observer, with packets in order of time. It fails for sessions
// above 35 minutes, whose microseconds overflow.
func (s *Session) TraceRows(load int64) ([]TraceRow, error) {
	if s.Duration().Microseconds() > math.MaxInt32 {
		return nil, &path.Error{What: "trace of " + s.Label, Why: "it is longer than 35 minutes", Hint: "cut the captures into sessions"}
	}
	start := s.Start()
	rows := make([]TraceRow, len(s.Observers))
	for i, o := range s.Observers {
		rows[i] = TraceRow{Label: s.Label, Monitored: true, Load: load, Path: int16(i), Time: []int32{}, Size: []int32{}}
		if len(s.Observers) == 1 {
			rows[i].Path = whole
		}
		for _, p := range o.Packets {
			size := int32(p.Size)
			if !p.Out {
				size = -size
			}
			rows[i].Time = append(rows[i].Time, int32(p.Time.Sub(start).Microseconds()))
			rows[i].Size = append(rows[i].Size, size)
		}
	}
	return rows, nil
}

// WriteRows writes rows as one Parquet table. It stores about as JSON, under the key "heddle".
func WriteRows(w io.Writer, rows []TraceRow, about any) error {
	text, err := json.Marshal(about)
	if err != nil {
		return err
	}
	out := parquet.NewGenericWriter[TraceRow](w, parquet.Compression(&parquet.Zstd), parquet.KeyValueMetadata("heddle", string(text)))
	if _, err := out.Write(rows); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	if err := out.Close(); err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

// WriteTrace writes the sessions as one Parquet table of [TraceRow], which keeps the names of the observers.
func WriteTrace(w io.Writer, sessions ...*Session) (TraceSummary, error) {
	summary := TraceSummary{Sessions: len(sessions), Paths: map[string]int{}}
	var all []TraceRow
	var names [][]string
	for i, s := range sessions {
		rows, err := s.TraceRows(int64(i))
		if err != nil {
			return summary, err
		}
		names = append(names, nil)
		for k, o := range s.Observers {
			names[i] = append(names[i], o.Name)
			summary.Paths[o.Name] += len(rows[k].Time)
			summary.Packets += len(rows[k].Time)
		}
		all = append(all, rows...)
		summary.Seconds += s.Duration().Seconds()
	}
	summary.Rows = len(all)
	return summary, WriteRows(w, all, map[string]any{"paths": names})
}
