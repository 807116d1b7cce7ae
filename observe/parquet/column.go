package parquet

import (
	"encoding/binary"
	"math"

	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// Column is a column of rows of type R: one value of each row, or a list of values.
type Column[R any] struct {
	path   []string             // of the values, below the root
	leaf   format.SchemaElement // of the values
	append func(*page, *R)
}

// list reports whether a row has any number of values.
func (c *Column[R]) list() bool { return len(c.path) > 1 }

// schema returns the elements of the column: itself, or a list of what may repeat.
func (c *Column[R]) schema() []format.SchemaElement {
	if !c.list() {
		return []format.SchemaElement{c.leaf}
	}
	one := thrift.New(int32(1))
	return []format.SchemaElement{
		{Name: c.path[0], RepetitionType: thrift.New(format.Required), NumChildren: one,
			ConvertedType: thrift.New(deprecated.List), LogicalType: format.LogicalType{Value: &format.ListType{}}},
		{Name: c.path[1], RepetitionType: thrift.New(format.Repeated), NumChildren: one},
		c.leaf,
	}
}

func column[R any](leaf format.SchemaElement, path []string, put func(*page, *R)) Column[R] {
	leaf.Name, leaf.RepetitionType = path[len(path)-1], thrift.New(format.Required)
	return Column[R]{path: path, leaf: leaf, append: put}
}

func single[R, V any](leaf format.SchemaElement, name string, of func(*R) V, put func(*page, V)) Column[R] {
	return column(leaf, []string{name}, func(p *page, r *R) {
		p.entries++
		put(p, of(r))
	})
}

func list[R, V any](leaf format.SchemaElement, name string, of func(*R) []V, put func(*page, V)) Column[R] {
	return column(leaf, []string{name, "list", "element"}, func(p *page, r *R) {
		values := of(r)
		p.row(len(values))
		for _, v := range values {
			put(p, v)
		}
	})
}

// integer is the type of signed integers of a width.
func integer(physical format.Type, width int8, converted deprecated.ConvertedType) format.SchemaElement {
	return format.SchemaElement{Type: thrift.New(physical), ConvertedType: thrift.New(converted),
		LogicalType: format.LogicalType{Value: &format.IntType{BitWidth: width, IsSigned: true}}}
}

// Bool is a column of booleans.
func Bool[R any](name string, of func(*R) bool) Column[R] {
	return single(format.SchemaElement{Type: thrift.New(format.Boolean)}, name, of, (*page).bit)
}

// String is a column of UTF-8.
func String[R any](name string, of func(*R) string) Column[R] {
	return single(format.SchemaElement{Type: thrift.New(format.ByteArray), ConvertedType: thrift.New(deprecated.UTF8),
		LogicalType: format.LogicalType{Value: &format.StringType{}}}, name, of, putBytes[string])
}

// Int16 is a column of signed integers.
func Int16[R any](name string, of func(*R) int16) Column[R] {
	return single(integer(format.Int32, 16, deprecated.Int16), name, of, func(p *page, v int16) { p.word(uint32(int32(v))) })
}

// Int64 is a column of signed integers.
func Int64[R any](name string, of func(*R) int64) Column[R] {
	return single(integer(format.Int64, 64, deprecated.Int64), name, of, func(p *page, v int64) {
		p.values = binary.LittleEndian.AppendUint64(p.values, uint64(v))
	})
}

// Int32s is a column of lists of signed integers.
func Int32s[R any](name string, of func(*R) []int32) Column[R] {
	return list(integer(format.Int32, 32, deprecated.Int32), name, of, func(p *page, v int32) { p.word(uint32(v)) })
}

// Float32s is a column of lists of numbers.
func Float32s[R any](name string, of func(*R) []float32) Column[R] {
	return list(format.SchemaElement{Type: thrift.New(format.Float)}, name, of, func(p *page, v float32) { p.word(math.Float32bits(v)) })
}

// Bytes is a column of lists of bytes.
func Bytes[R any](name string, of func(*R) [][]byte) Column[R] {
	return list(format.SchemaElement{Type: thrift.New(format.ByteArray)}, name, of, putBytes[[]byte])
}
