package daemon

import (
	"net/http"
	"net/http/pprof"
)

// profile lets root look into the process, as docs/performance.md does. Profiles tell what is in memory, keys too.
func (d *Daemon) profile() {
	for path, handler := range map[string]http.HandlerFunc{"": pprof.Index, "profile": pprof.Profile, "trace": pprof.Trace, "cmdline": pprof.Cmdline, "symbol": pprof.Symbol} {
		d.local.HandleRoot("GET /debug/pprof/"+path, handler)
	}
}
