package observe

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"heddle/internal/errhint"
	"heddle/observe/parquet"
	"heddle/path"
)

// TraceRow is what one observer saw of one session, for fingerprinting research. docs/traces.md explains the columns.
type TraceRow struct {
	Label     string  `parquet:"label"`        // of the session, such as the page that was visited
	Monitored bool    `parquet:"monitored"`    // whether an observer looks for that label
	Load      int64   `parquet:"load"`         // session number, which its observers' rows share
	Path      int16   `parquet:"path"`         // observer, from 0 in the order of names; -1 for the only one
	Time      []int32 `parquet:"time_us,list"` // of each packet, microseconds since the session's first
	Size      []int32 `parquet:"size,list"`    // bytes of the IP packet; positive from client to server
	// Connection is the conversation of each packet: the row's conversations between two ports, from 0 in the order of their first packets.
	Connection []int32 `parquet:"connection,list"`
	Payload    []int32 `parquet:"payload,list"` // bytes that TCP, UDP or else IP carries, of each packet
	// Acknowledged is [Packet.Acknowledged] of each packet in microseconds, or -1.
	Acknowledged []int32 `parquet:"ack_us,list"`
	// Entropy and Printable are statistics of each packet's payload, and Up and Down the beginning of what the client and the server
	// sent in each connection, at most [BeginningLimit] bytes. All are empty unless the contents were read.
	Entropy   []float32 `parquet:"entropy,list"`
	Printable []float32 `parquet:"printable,list"`
	Up        [][]byte  `parquet:"first_up,list"`
	Down      [][]byte  `parquet:"first_down,list"`
}

// TraceColumns is the version of the columns, in the metadata of the file. Version 1, without mention, ended with Connection.
const TraceColumns = 2

// whole is the path of a session whose one observer sees all of it.
const whole = -1

// TraceRows returns the session's rows, one for each observer, with packets in order of time. It fails for sessions
// above 35 minutes, whose microseconds overflow.
func (s *Session) TraceRows(load int64) ([]TraceRow, error) {
	if microseconds(s.Duration()) > math.MaxInt32 {
		return nil, &path.Error{What: "trace of " + s.Label, Why: "it is longer than 35 minutes", Hint: "cut the captures into sessions"}
	}
	start := s.Start()
	rows := make([]TraceRow, len(s.Observers))
	for i, o := range s.Observers {
		rows[i] = TraceRow{Label: s.Label, Monitored: true, Load: load, Path: int16(i), Time: []int32{}, Size: []int32{}, Connection: []int32{}}
		if len(s.Observers) == 1 {
			rows[i].Path = whole
		}
		numbers := map[int]int32{} // by the flow's index
		for _, p := range o.Packets {
			number, known := numbers[p.Flow]
			if !known {
				number = int32(len(numbers))
				numbers[p.Flow] = number
				if o.contents {
					up, down := o.Flows[p.Flow].beginnings(p)
					rows[i].Up, rows[i].Down = append(rows[i].Up, up), append(rows[i].Down, down)
				}
			}
			rows[i].Connection = append(rows[i].Connection, number)
			rows[i].Payload = append(rows[i].Payload, int32(p.Payload))
			rows[i].Acknowledged = append(rows[i].Acknowledged, acknowledgedAfter(p.Acknowledged))
			if o.contents {
				rows[i].Entropy, rows[i].Printable = append(rows[i].Entropy, p.Contents.Entropy), append(rows[i].Printable, p.Contents.Printable)
			}
			size := int32(p.Size)
			if !p.Out {
				size = -size
			}
			rows[i].Time = append(rows[i].Time, int32(microseconds(p.Time.Sub(start))))
			rows[i].Size = append(rows[i].Size, size)
		}
	}
	return rows, nil
}

// acknowledgedAfter returns microseconds, or -1 if there was no acknowledgement, or only one after 35 minutes.
func acknowledgedAfter(d time.Duration) int32 {
	if us := microseconds(d); d > 0 && us <= math.MaxInt32 {
		return int32(us)
	}
	return -1
}

func microseconds(d time.Duration) float64 {
	return math.RoundToEven(float64(d) / float64(time.Microsecond))
}

// Trace collects the rows of sessions. [NewTrace] makes one.
type Trace struct {
	Summary TraceSummary
	rows    []TraceRow
	names   [][]string // of the observers of each session
}

// TraceSummary counts the contents of a trace.
type TraceSummary struct {
	Out      string           `json:"out"`
	Rows     int              `json:"rows"`
	Packets  int              `json:"packets"`
	Sessions int              `json:"sessions"`
	Paths    map[string]int   `json:"paths"` // packets of each observer
	Seconds  float64          `json:"seconds"`
	Captures []CaptureSummary `json:"captures"`
	Skipped  []SkippedSession `json:"skipped"`
}

// CaptureSummary counts what one capture file gave to a trace, and what was left out.
type CaptureSummary struct {
	Session   string  `json:"session"`
	Observer  string  `json:"observer"`
	File      string  `json:"file"`
	Packets   int     `json:"packets"`           // IP packets of the client
	ClientBy  string  `json:"client_by"`         // "given", "capture" or "guessed"
	Stopped   string  `json:"stopped,omitempty"` // why the capture ends early
	Missed    uint64  `json:"missed"`            // packets that the capture says it dropped
	Filtered  uint64  `json:"filtered"`          // packets that the filter left out
	NotIP     uint64  `json:"not_ip"`            // other packets that are not IP, left out
	Foreign   uint64  `json:"foreign"`           // packets of other hosts, left out
	Empty     int     `json:"empty"`             // of Packets, those without payload
	Joined    int     `json:"joined"`            // of Packets, those above 1,500 bytes: joined by offloading
	Backwards float64 `json:"backwards"`         // largest step of times back, in seconds

	disordered int
}

// SkippedSession is a session that cannot be read, and why.
type SkippedSession struct {
	Session string `json:"session"`
	What    string `json:"what"`
	Why     string `json:"why"`
	Hint    string `json:"hint,omitempty"`
}

func (c *Capture) summary(session, observer, file string) CaptureSummary {
	s := CaptureSummary{Session: session, Observer: observer, File: file, Packets: len(c.Packets), ClientBy: c.How,
		Stopped: c.Stopped, Missed: c.Missed, Filtered: c.Filtered, NotIP: c.NotIP, Foreign: c.Foreign,
		Backwards: c.Backwards.Seconds(), disordered: c.Disordered}
	for _, p := range c.Packets {
		if p.Payload == 0 {
			s.Empty++
		}
		if p.Size > ethernetMTU {
			s.Joined++
		}
	}
	return s
}

// NewTrace returns a trace without sessions.
func NewTrace() *Trace {
	return &Trace{names: [][]string{},
		Summary: TraceSummary{Paths: map[string]int{}, Captures: []CaptureSummary{}, Skipped: []SkippedSession{}}}
}

// Add adds the rows of a session, which it cuts into several as the options say.
func (t *Trace) Add(s *Session, options TraceOptions) error {
	pieces, err := s.cut(options)
	if err != nil {
		return err
	}
	var all []TraceRow
	for i, piece := range pieces {
		rows, err := piece.TraceRows(int64(t.Summary.Sessions + i))
		if err != nil {
			return err
		}
		all = append(all, rows...)
	}
	t.rows = append(t.rows, all...)
	for _, piece := range pieces {
		var names []string
		for _, o := range piece.Observers {
			names = append(names, o.Name)
			t.Summary.Paths[o.Name] += len(o.Packets)
			t.Summary.Packets += len(o.Packets)
		}
		t.names = append(t.names, names)
		t.Summary.Seconds += piece.Duration().Seconds()
	}
	for _, o := range s.Observers {
		t.Summary.Captures = append(t.Summary.Captures, o.captures...)
	}
	t.Summary.Sessions += len(pieces)
	t.Summary.Rows = len(t.rows)
	return nil
}

// Skip notes a session that cannot be read.
func (t *Trace) Skip(session string, err error) {
	skipped := SkippedSession{Session: session, What: session, Why: errhint.Reason(err), Hint: errhint.Of(err)}
	if e, ok := err.(*path.Error); ok {
		skipped.What = e.What
	}
	t.Summary.Skipped = append(t.Summary.Skipped, skipped)
}

// Write writes the rows as one Parquet table of [TraceRow], which keeps the names of the observers.
func (t *Trace) Write(w io.Writer) error {
	return WriteRows(w, t.rows, map[string]any{"paths": t.names})
}

// WriteRows writes rows as one Parquet table. It stores about as JSON, under the key "heddle".
func WriteRows(w io.Writer, rows []TraceRow, about any) error {
	text, err := json.Marshal(about)
	if err != nil {
		return err
	}
	err = parquet.Write(w, "TraceRow", traceColumns, rows, parquet.Pair{Key: "heddle", Value: string(text)},
		parquet.Pair{Key: "heddle.columns", Value: strconv.Itoa(TraceColumns)})
	if err != nil {
		return fmt.Errorf("write trace: %w", err)
	}
	return nil
}

// traceColumns are the columns as the tags of [TraceRow] say.
var traceColumns = []parquet.Column[TraceRow]{
	parquet.String("label", func(r *TraceRow) string { return r.Label }),
	parquet.Bool("monitored", func(r *TraceRow) bool { return r.Monitored }),
	parquet.Int64("load", func(r *TraceRow) int64 { return r.Load }),
	parquet.Int16("path", func(r *TraceRow) int16 { return r.Path }),
	parquet.Int32s("time_us", func(r *TraceRow) []int32 { return r.Time }),
	parquet.Int32s("size", func(r *TraceRow) []int32 { return r.Size }),
	parquet.Int32s("connection", func(r *TraceRow) []int32 { return r.Connection }),
	parquet.Int32s("payload", func(r *TraceRow) []int32 { return r.Payload }),
	parquet.Int32s("ack_us", func(r *TraceRow) []int32 { return r.Acknowledged }),
	parquet.Float32s("entropy", func(r *TraceRow) []float32 { return r.Entropy }),
	parquet.Float32s("printable", func(r *TraceRow) []float32 { return r.Printable }),
	parquet.Bytes("first_up", func(r *TraceRow) [][]byte { return r.Up }),
	parquet.Bytes("first_down", func(r *TraceRow) [][]byte { return r.Down }),
}
