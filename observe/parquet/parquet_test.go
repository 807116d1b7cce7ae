package parquet

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	lib "github.com/parquet-go/parquet-go"
)

type row struct {
	Name  string    `parquet:"name"`
	Known bool      `parquet:"known"`
	Short int16     `parquet:"short"`
	Long  int64     `parquet:"long"`
	Ints  []int32   `parquet:"ints,list"`
	Parts []float32 `parquet:"parts,list"`
	Texts [][]byte  `parquet:"texts,list"`
}

var columns = []Column[row]{
	String("name", func(r *row) string { return r.Name }),
	Bool("known", func(r *row) bool { return r.Known }),
	Int16("short", func(r *row) int16 { return r.Short }),
	Int64("long", func(r *row) int64 { return r.Long }),
	Int32s("ints", func(r *row) []int32 { return r.Ints }),
	Float32s("parts", func(r *row) []float32 { return r.Parts }),
	Bytes("texts", func(r *row) [][]byte { return r.Texts }),
}

// rows has lists of all lengths, among them none, and enough for several pages.
func rows(random *rand.Rand, n int) []row {
	all := make([]row, n)
	for i := range all {
		r := &all[i]
		r.Name, r.Known = strings.Repeat("é", random.IntN(5)), random.IntN(2) == 1
		r.Short, r.Long = int16(random.Uint32()), int64(random.Uint64())
		r.Ints, r.Parts, r.Texts = []int32{}, []float32{}, [][]byte{}
		for range random.IntN(3) * random.IntN(2000) {
			r.Ints = append(r.Ints, int32(random.Uint32()))
		}
		for range random.IntN(20) {
			r.Parts = append(r.Parts, random.Float32())
			r.Texts = append(r.Texts, make([]byte, random.IntN(3)))
		}
	}
	return all
}

// parquet-go reads what was written, and would have given the table the same schema.
func TestWrite(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 7, 8, 9, 1000} {
		want := rows(random, n)
		var file bytes.Buffer
		if err := Write(&file, "row", columns, want, Pair{Key: "a", Value: "b"}); err != nil {
			t.Fatal(err)
		}
		opened, err := lib.OpenFile(bytes.NewReader(file.Bytes()), int64(file.Len()))
		if err != nil {
			t.Fatal(n, err)
		}
		if got, want := opened.Schema().String(), lib.SchemaOf(row{}).String(); got != want {
			t.Errorf("schema %s, want %s", got, want)
		}
		if value, ok := opened.Lookup("a"); !ok || value != "b" {
			t.Errorf("metadata: %q", value)
		}
		got, err := lib.Read[row](bytes.NewReader(file.Bytes()), int64(file.Len()))
		if err != nil || len(got) != n {
			t.Fatalf("%d rows, want %d: %v", len(got), n, err)
		}
		for i := range got {
			if !reflect.DeepEqual(got[i], want[i]) {
				t.Fatalf("row %d of %d: %.200v, want %.200v", i, n, got[i], want[i])
			}
		}
		for _, group := range opened.Metadata().RowGroups {
			for i, c := range group.Columns {
				if pages := countPages(t, opened.RowGroups()[0].ColumnChunks()[i]); n == 1000 && c.MetaData.PathInSchema[0] == "ints" && pages < 2 {
					t.Errorf("%d pages in %v", pages, c.MetaData.PathInSchema)
				}
				if c.MetaData.TotalCompressedSize <= 0 || c.MetaData.NumValues < int64(n) {
					t.Errorf("%v: %+v", c.MetaData.PathInSchema, c.MetaData)
				}
			}
		}
	}
}

func countPages(t *testing.T, c lib.ColumnChunk) (n int) {
	pages := c.Pages()
	defer pages.Close()
	for {
		p, err := pages.ReadPage()
		if err != nil {
			return n
		}
		n++
		lib.Release(p)
	}
}

type full struct{ left int }

var errFull = errors.New("full")

func (f *full) Write(b []byte) (int, error) {
	if f.left -= len(b); f.left < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestErrors(t *testing.T) {
	all := rows(rand.New(rand.NewPCG(1, 2)), 3)
	for size := range 300 {
		if err := Write(&full{left: size}, "row", columns, all); !errors.Is(err, errFull) {
			t.Fatalf("disk with room for %d bytes: %v", size, err)
		}
	}
}
