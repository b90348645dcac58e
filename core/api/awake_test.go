package api

import (
	"testing"
	"time"
)

func TestHowLongItMayBeKeptAwake(t *testing.T) {
	for _, c := range []struct {
		o  AwakeOptions
		ok bool
	}{
		{AwakeOptions{}, false},
		{AwakeOptions{Off: true}, true},
		{AwakeOptions{UntilGuestsEnd: true}, true},
		{AwakeOptions{UntilGuestsEnd: true, For: Duration(time.Hour)}, true},
		{AwakeOptions{For: LeastAwake}, true},
		{AwakeOptions{For: LeastAwake - 1}, false},
		{AwakeOptions{For: MostAwake}, true},
		{AwakeOptions{For: MostAwake + 1}, false},
		{AwakeOptions{For: -1}, false},
		{AwakeOptions{Off: true, For: Duration(time.Hour)}, false},
		{AwakeOptions{Off: true, UntilGuestsEnd: true}, false},
	} {
		if err := c.o.Check(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.o, err)
		}
	}
}
