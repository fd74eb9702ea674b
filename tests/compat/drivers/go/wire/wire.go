// Package wire is what the drivers in Go share: calls and answers a line, see tests/compat/driving.py.
package wire

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"strings"
	"sync"
)

// Lacks says that the client has no such thing.
type Lacks string

func (l Lacks) Error() string { return string(l) }

// Record is a record as it is told; text has one character a byte.
type Record struct {
	Value     *string     `json:"value"`
	Key       *string     `json:"key"`
	Headers   [][]*string `json:"headers"`
	Timestamp *int64      `json:"timestamp"`
	Partition int32       `json:"partition"`
}

// Found is a record as it is read.
type Found struct {
	Offset    int64       `json:"offset"`
	Value     *string     `json:"value"`
	Key       *string     `json:"key"`
	Headers   [][]*string `json:"headers"`
	Timestamp int64       `json:"timestamp"`
}

// Call is a call with all arguments that there are.
type Call struct {
	ID            int               `json:"id"`
	Do            string            `json:"do"`
	Topic         string            `json:"topic"`
	Records       []Record          `json:"records"`
	Compression   string            `json:"compression"`
	Acks          *int              `json:"acks"`
	Producer      string            `json:"producer"`
	Idempotent    bool              `json:"idempotent"`
	Transactional string            `json:"transactional"`
	Partition     int32             `json:"partition"`
	Offset        int64             `json:"offset"`
	Count         int               `json:"count"`
	Committed     bool              `json:"committed"`
	Timestamp     int64             `json:"timestamp"`
	Member        string            `json:"member"`
	Group         string            `json:"group"`
	Protocol      string            `json:"protocol"`
	Strategy      string            `json:"strategy"`
	Instance      string            `json:"instance"`
	SessionMs     int               `json:"session_ms"`
	Partitions    int32             `json:"partitions"`
	Config        map[string]string `json:"config"`
	Name          string            `json:"name"`
	NewValue      string            `json:"value"`
	Before        int64             `json:"before"`
}

var saying sync.Mutex

// Say prints a line.
func Say(said map[string]any) {
	line, err := json.Marshal(said)
	if err != nil {
		panic(err)
	}
	saying.Lock()
	defer saying.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// Holds says all that a member has.
func Holds(member string, partitions map[int32]bool) {
	Say(map[string]any{"event": "holds", "member": member, "partitions": sorted(partitions)})
}

// Lost says what was taken from a member.
func Lost(member string, partitions map[int32]bool) {
	if len(partitions) > 0 {
		Say(map[string]any{"event": "lost", "member": member, "partitions": sorted(partitions)})
	}
}

// Heard says a record of a member.
func Heard(member string, partition int32, offset int64, value []byte) {
	Say(map[string]any{
		"event": "record", "member": member, "partition": partition, "offset": offset, "value": *Text(append([]byte{}, value...)),
	})
}

func sorted(partitions map[int32]bool) []int32 {
	numbers := []int32{}
	for number := range partitions {
		numbers = append(numbers, number)
	}
	sort.Slice(numbers, func(i, j int) bool { return numbers[i] < numbers[j] })
	return numbers
}

// Raw is the bytes of a text.
func Raw(text *string) []byte {
	if text == nil {
		return nil
	}
	raw := []byte{}
	for _, character := range *text {
		raw = append(raw, byte(character))
	}
	return raw
}

// Text is bytes as text.
func Text(raw []byte) *string {
	if raw == nil {
		return nil
	}
	var text strings.Builder
	for _, one := range raw {
		text.WriteRune(rune(one))
	}
	found := text.String()
	return &found
}

// Serve answers calls until the input ends.
func Serve(client, version string, answer func(Call) (any, error)) {
	Say(map[string]any{"hello": map[string]string{"client": client, "version": version}})
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		var call Call
		if err := json.Unmarshal(line, &call); err != nil {
			panic(err)
		}
		found, failed := answer(call)
		switch lacks, is := failed.(Lacks); {
		case is:
			Say(map[string]any{"id": call.ID, "lacks": string(lacks)})
		case failed != nil:
			fmt.Fprintln(os.Stderr, call.Do, failed)
			Say(map[string]any{"id": call.ID, "error": failed.Error()})
		default:
			Say(map[string]any{"id": call.ID, "ok": found})
		}
	}
}
