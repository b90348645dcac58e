package localapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/api/client"
	"kith.dev/daemon/localapi"
	"kith.dev/test/apitest"
)

func TestReaderThatStopsHoldsUpNobodyAndLearnsWhatItMissed(t *testing.T) {
	broker := localapi.NewBroker(64)
	socket := apitest.Serve(t, &apitest.Backend{}, broker)
	stuck, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	fmt.Fprintf(stuck, "GET /v1/events?follow=true HTTP/1.0\r\n\r\n")
	reader := bufio.NewReader(stuck)
	for line := ""; line != "\r\n"; { // the head of the answer; then it stops reading
		if line, err = reader.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}

	const many = 20_000
	last := make(chan string)
	c := client.New(socket)
	defer c.Close()
	go func() {
		defer close(last)
		for e, err := range c.Events(t.Context(), client.EventsFrom{Follow: true}) {
			if err != nil || e.Object == fmt.Sprint(many) {
				last <- e.Object
				return
			}
		}
	}()
	for i := 1; i <= many; i++ { // would stand still if the stuck reader were waited for
		broker.Publish(api.Event{Type: api.EventPeerSeen, Object: fmt.Sprint(i), Message: strings.Repeat("x", 1000)})
	}
	if got := <-last; got != fmt.Sprint(many) {
		t.Errorf("the other reader ended at %q", got)
	}

	stuck.SetReadDeadline(time.Now().Add(2 * time.Minute))
	missed, before := false, uint64(0)
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "\n" {
			continue
		}
		var e api.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if before != 0 && e.Seq != before+1 && e.Type != api.EventMissed {
			t.Fatalf("from %d to %d (%s) without a word", before, e.Seq, e.Type)
		}
		missed, before = missed || e.Type == api.EventMissed, e.Seq
		if e.Object == fmt.Sprint(many) {
			break
		}
	}
	if !missed {
		t.Error("it was not told that it missed any")
	}
}

func TestEventsSinceAndLatest(t *testing.T) {
	broker := localapi.NewBroker(8)
	c := client.New(apitest.Serve(t, &apitest.Backend{}, broker))
	defer c.Close()
	for i := range 3 {
		broker.Publish(api.Event{Message: fmt.Sprint(i)})
	}
	read := func(from client.EventsFrom) (out []string, last uint64) {
		for e, err := range c.Events(t.Context(), from) {
			if err != nil {
				t.Fatal(err)
			}
			out, last = append(out, e.Message), e.Seq
		}
		return out, last
	}
	all, last := read(client.EventsFrom{})
	if fmt.Sprint(all) != "[0 1 2]" {
		t.Error(all)
	}
	broker.Publish(api.Event{Message: "3"})
	if got, _ := read(client.EventsFrom{Since: last}); fmt.Sprint(got) != "[3]" {
		t.Error(got)
	}
	if got, _ := read(client.EventsFrom{Latest: true}); len(got) != 0 {
		t.Error(got)
	}
}
