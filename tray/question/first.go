package question

import (
	"kith.dev/core/api"
	"kith.dev/core/local/kubeconfig"
	"kith.dev/tray/words"
)

// shares are the parts of this laptop that Share offers, from its first button to its last.
var shares = []string{"0%", "25%", "50%", "75%", "100%"}

// Share asks how much of this laptop is shared, and says how much is now. fenced says that Kith runs the cluster here, and so keeps guests
// apart. No pauses, or ends a pause.
func Share(now api.Sharing, fenced bool) Question {
	last := len(shares) - 1
	q := Question{
		Lead: "How much of this laptop may others on your network use?",
		Text: []string{
			"Now it is " + words.Sharing(now) + ".",
			"At most that part of its processors, memory and scratch space is offered, and what your own pods ask for is not. What was signed stays. " +
				"You can end it at any time.",
		},
		Yes: amount(shares[last]), No: "Pause",
	}
	if now.Paused {
		q.No = "Resume"
	}
	if fenced {
		q.Text = append(q.Text, "Pods of others are fenced: they reach neither this laptop nor your network.")
	}
	for _, share := range shares[:last] {
		q.Or = append(q.Or, amount(share))
	}
	return q
}

// Shared is the part that an answer to Share means; "" is none.
func Shared(a Answer) string {
	if a == Yes {
		return shares[len(shares)-1]
	}
	if i := int(a - firstOr); a >= firstOr && i < len(shares)-1 {
		return shares[i]
	}
	return ""
}

func amount(share string) string {
	if share == "0%" {
		return "Nothing"
	}
	return words.Percent(share)
}

// Each asks whether the owner answers each request for the shared part, or all are accepted.
func Each(share string) Question {
	return Question{
		Lead: "Ask you each time somebody wants to use " + amount(share) + " of this laptop?",
		Text: []string{
			"Ask me: you see who asks and what it would get, and accept or decline.",
			"Accept all: everybody on your network who asks gets it, whoever that is.",
		},
		Yes: "Ask me", No: "Accept all",
	}
}

const maxPath = 240

// Kubectl asks whether a context is written into the person's kubeconfig. Its further button, if there is one, makes it the current context, too.
func Kubectl(p kubeconfig.Plan) Question {
	path, context := words.Clean(p.Path, maxPath), words.Clean(p.Context, maxPath)
	q := Question{Lead: "Let kubectl reach the Kubernetes of this laptop?", Yes: "Write it"}
	switch {
	case p.New:
		q.Text = append(q.Text, "The context "+context+" is written into a new file, "+path+".")
	case p.Replaces:
		q.Text = append(q.Text, "The context "+context+" in "+path+" is renewed. All else there stays as it is.")
	default:
		q.Text = append(q.Text, "The context "+context+" is added to "+path+". All else there stays as it is.")
	}
	if p.Link != "" {
		q.Text = append(q.Text, "That is a link: what is written is "+words.Clean(p.Link, maxPath)+".")
	}
	q.Text = append(q.Text, "It holds an administrator's key: keep the file to yourself.")
	if p.Uses || p.Current == p.Context {
		verb := map[bool]string{true: "becomes", false: "is"}[p.Uses]
		q.Text = append(q.Text, "It "+verb+" the current context: `kubectl get nodes` shows this laptop.")
		return q
	}
	q.Text = append(q.Text, "The current context stays "+words.Clean(p.Current, maxPath)+": `kubectl --context "+context+" get nodes` shows this laptop.")
	q.Or = []string{"Write and use it"}
	return q
}
