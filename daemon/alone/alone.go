// Package alone is what kithd does for kith where no kithd answers: it looks at this machine, and makes what can be made of a bug report.
// It runs as whoever calls it, talks to nobody and changes nothing. In the container of a node's agent it asks the cluster which kithd works
// instead. cmd/kithd has the commands; kith itself links none of it, and stays small.
package alone

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"time"

	"kith.dev/core/api"
	"kith.dev/core/base/version"
	"kith.dev/daemon/bugreport"
	"kith.dev/daemon/config"
	"kith.dev/daemon/doctor"
)

// Doctor looks at this machine, as it is configured, and writes each api.Finding as a line of JSON once it is known.
func Doctor(ctx context.Context, load func() (config.Config, error), out io.Writer) error {
	to := json.NewEncoder(out)
	if lease := os.Getenv(api.EnvAgentLease); lease != "" {
		// What else there is to look at is the node's, and no configuration of kithd is here: its ports and ranges would be guesses.
		return to.Encode(agent(ctx, inCluster, os.Getenv(api.EnvAgentNode), lease))
	}
	cfg, err := load()
	if err != nil {
		return to.Encode(api.Finding{
			Area: api.AreaDaemon, Name: "config", State: api.CheckFail, What: "the configuration of kithd cannot be used", Why: err.Error(), Do: "correct " + config.DefaultPath,
		})
	}
	doctor.Run(ctx, func(f api.Finding) {
		if failed := to.Encode(f); err == nil {
			err = failed
		}
	}, doctor.Machine{Config: cfg}.Groups()...)
	return err
}

// BugReport writes a bug report of what this machine says without a running kithd; why says what became of that.
func BugReport(ctx context.Context, load func() (config.Config, error), why string, out io.Writer) error {
	return bugreport.Write(ctx, out, time.Now(), append([]bugreport.Part{
		bugreport.Text("kithd.txt", "why the running kithd did not make this report", why+"\n"),
		bugreport.Text("version.txt", "the version of Kith", version.Version+" "+version.Commit+"\n"),
		{Name: "doctor.json", What: "what kith doctor finds without a running kithd, a line each", Make: func(ctx context.Context) ([]byte, error) {
			var lines bytes.Buffer
			err := Doctor(ctx, load, &lines)
			return lines.Bytes(), err
		}},
		bugreport.ServiceLog(),
	}, bugreport.System()...))
}
