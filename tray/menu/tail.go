package menu

import "kith.dev/tray/words"

// tools are what a developer wants at hand.
func (b *builder) tools() {
	b.line("tools")
	for _, i := range []Item{
		{ID: "kubeconfig", Label: "Copy kubeconfig", Action: Action{Verb: CopyKubeconfig}},
		{ID: "terminal", Label: "Open terminal here", Action: Action{Verb: OpenTerminal}},
	} {
		i.Disabled = !b.usable()
		b.add(i)
	}
}

// tail is there whatever happens.
func (b *builder) tail() {
	if b.Link != Up {
		b.line("tail")
	}
	b.click("diagnose", "Diagnose…", Diagnose, "")
	b.line("about")
	if len(b.Kinds) > 0 {
		b.kinds()
	}
	b.click("about", "About Kith", ShowAbout, "")
	b.click("quit", "Quit", Quit, "")
}

// kinds turns notifications on and off.
func (b *builder) kinds() {
	if b.Open != FoldKinds {
		b.click("kinds", "Notifications…", Open, string(FoldKinds))
		return
	}
	b.click("kinds", "Notifications:", Open, string(NoFold))
	for _, k := range b.Kinds {
		b.add(Item{ID: "kind/" + k.Name, Label: "    " + words.Text(k.Label), Mark: Check, On: k.On, Action: Action{SetKind, k.Name}})
	}
}
