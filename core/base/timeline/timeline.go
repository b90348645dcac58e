// Package timeline tells how long the parts of a start take. The programs note in their logs when a part is ready; from the logs it is read
// and drawn.
//
// It must never decide anything: what waits for what stands in the code that starts the parts.
package timeline

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The messages of the records that a Start is read from, and their attributes.
const (
	Ready = "part is ready"
	part  = "part"
	took  = "took"
)

// Begin notes that a part of the start begins. ready is to be called when others can go on with it, and logs that.
func Begin(log *slog.Logger, name string) (ready func()) {
	began := time.Now()
	return func() { log.Info(Ready, part, name, took, time.Since(began).Round(time.Millisecond)) }
}

// Part is one part of a start. Times are since its program began.
type Part struct {
	Name     string
	From, To time.Duration
}

// Start is how a program started.
type Start struct {
	Program string
	At      time.Time
	Parts   []Part // by when they began
}

// programs are the messages with which each program begins.
var programs = map[string]string{"kithd started": "kithd", "starting": "kith-k8s"}

// longestLine is what a line of a log may have; what is longer is no record that counts here.
const longestLine = 1 << 20

// Read reads the last start from a log: lines of slog.TextHandler, whatever a journal has put before them. Without one it is the zero value.
func Read(log io.Reader) (last Start, err error) {
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		at, record := read(lines.Text())
		program := programs[record[slog.MessageKey]]
		switch {
		case at.IsZero():
		case program != "":
			last = Start{Program: program, At: at}
		case record[slog.MessageKey] == Ready && last.Program != "":
			// A clock may have been set in between; and what is made anew later is no part of the start.
			lasted, err := time.ParseDuration(record[took])
			again := slices.ContainsFunc(last.Parts, func(p Part) bool { return p.Name == record[part] })
			if err == nil && lasted >= 0 && at.After(last.At) && !again {
				to := at.Sub(last.At)
				last.Parts = append(last.Parts, Part{record[part], max(0, to-lasted), to})
			}
		}
	}
	slices.SortStableFunc(last.Parts, func(a, b Part) int { return cmp.Compare(a.From, b.From) })
	return last, lines.Err()
}

// read gives the time and the attributes of a record; the zero time where a line is none.
func read(line string) (at time.Time, record map[string]string) {
	_, rest, found := strings.Cut(line, slog.TimeKey+"=")
	if !found {
		return at, nil
	}
	rest, record = slog.TimeKey+"="+rest, map[string]string{}
	for rest != "" {
		key, value, found := strings.Cut(strings.TrimLeft(rest, " "), "=")
		if !found {
			break
		}
		if quoted, err := strconv.QuotedPrefix(value); err == nil {
			record[key], _ = strconv.Unquote(quoted)
			rest = value[len(quoted):]
			continue
		}
		record[key], rest, _ = strings.Cut(value, " ")
	}
	at, err := time.Parse(time.RFC3339Nano, record[slog.TimeKey])
	if err != nil {
		return time.Time{}, nil
	}
	return at, record
}

// width is how many columns the longest start has.
const width = 60

// Draw draws starts below each other, by one scale: what began when, how long it took, and when it was ready.
func Draw(w io.Writer, starts ...Start) error {
	var first, end time.Time
	names := 0
	for _, s := range starts {
		if first.IsZero() || s.At.Before(first) {
			first = s.At
		}
		for _, p := range s.Parts {
			if at := s.At.Add(p.To); at.After(end) {
				end = at
			}
			names = max(names, len(p.Name))
		}
	}
	all := max(end.Sub(first), time.Millisecond)
	column := func(at time.Duration) int { return int(min(1, max(0, float64(at)/float64(all))) * width) }
	var b strings.Builder
	for _, s := range starts {
		fmt.Fprintf(&b, "%s started at %s\n", s.Program, s.At.Local().Format("2006-01-02 15:04:05.000"))
		for _, p := range s.Parts {
			from, to := s.At.Sub(first)+p.From, s.At.Sub(first)+p.To
			bar := strings.Repeat(" ", column(from)) + strings.Repeat("=", max(1, column(to)-column(from)))
			fmt.Fprintf(&b, "  %-*s %6.2f s  %6.2f s |%s\n", names, p.Name, from.Seconds(), to.Seconds(), bar)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
