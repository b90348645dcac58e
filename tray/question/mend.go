package question

import (
	"fmt"

	"kith.dev/core/api"
	"kith.dev/tray/words"
)

// maxLines bounds the lines of a window that lists things.
const maxLines = 24

// Mend asks whether what the doctor found is to be mended, and shows the commands, all of which kithd runs as root. It may be called for
// findings that can be mended.
func Mend(found []api.Finding) Question {
	q := Question{Lead: "Have kithd mend what was found?", Yes: "Mend"}
	for _, f := range found {
		q.Text = append(q.Text, words.Clean(f.What, maxEffect)+":")
		for _, command := range f.Fix {
			q.Text = append(q.Text, "   "+words.Clean(command, maxEffect))
		}
	}
	q.Text = append(q.Text, "It is done as root. What you set up otherwise is left alone.")
	return q
}

// Report asks whether a bug report of so many bytes is to be written, and lists what is in it.
func Report(files []api.BugReportFile, bytes int) Question {
	q := Question{Lead: fmt.Sprintf("Save a report of %d KiB?", (bytes+1023)>>10), Yes: "Save"}
	q.Text = append(q.Text, "It holds names and addresses, and no Secrets, keys, kubeconfigs and environments of pods:")
	for i, f := range files {
		if i == maxLines && len(files) > maxLines+1 {
			q.Text = append(q.Text, fmt.Sprintf("… and %d more: kith bugreport lists all", len(files)-i))
			break
		}
		q.Text = append(q.Text, fmt.Sprintf("- %s, %d KiB", words.Clean(f.Name, maxEffect), (f.Size+1023)>>10))
	}
	return q
}
